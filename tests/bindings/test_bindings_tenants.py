"""Two tenants use the same names, and neither gets messages of the other."""

from azure_client import complete_all
from configuring import binding, queue


def test_tenants_apart(brokers_with, connect, entity):
    toml = ""
    for tenant in ("acme", "globex"):
        toml += queue("in", RequiresSession=False).replace("[[queues]]", f'[[queues]]\ntenant = "{tenant}"')
        toml += queue("out", RequiresSession=False).replace("[[queues]]", f'[[queues]]\ntenant = "{tenant}"')
        toml += binding("in", tenant=tenant, filter="#", queue="in") + binding("out", tenant=tenant, from_queue="out", publish="out")
        toml += f'[[keys]]\nname = "{tenant}/all"\nkey = "{tenant}-secret"\nrights = ["Send", "Listen", "Manage"]\n'
    running = brokers_with(toml)
    devices = {tenant: connect(to=running, tenant=tenant, client_id="same") for tenant in ("acme", "globex")}
    workers = {tenant: lambda path, tenant=tenant: entity(running, path, keys=(f"{tenant}/all", f"{tenant}-secret")) for tenant in devices}
    for tenant, device in devices.items():
        device.subscribe("out", qos=1)
        assert device.publish("same/topic", tenant.encode(), 1).reason == 0
        workers[tenant]("out").send(tenant)
    for tenant, device in devices.items():
        assert device.receive(tenant.encode())
        device.expect_nothing()
        with workers[tenant]("in").plain() as worker:
            assert complete_all(worker, 1) == [tenant]
    # A tenant without bindings.
    assert connect(to=running).publish("same/topic", b"x", 1).reason == 0x10
