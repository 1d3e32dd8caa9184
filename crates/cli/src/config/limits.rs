//! Checks of limits and tenants.

use barid_engine::limit_ranges::out_of_range;
use barid_engine::limits::Limits;
use barid_engine::names::check_tenant_name;
use barid_server::settings::Settings;

use super::problem::Place;
use super::validate::Objections;

pub fn check(settings: &Settings, found: &mut Objections) {
    check_limits(&Place::of(&["limits"]), &settings.limits, None, found);
    for name in settings.tenants.keys() {
        let place = Place::of(&["tenants", name]);
        if let Err(error) = check_tenant_name(name) {
            found.add(place.clone(), error.to_string(), "a user name is {tenant}/{client}");
        }
        let limits = settings.limits_of(name);
        check_limits(&place.key("limits"), &limits, Some(&settings.limits), found);
    }
}

/// Checks limits. `common` are the limits that apply under a tenant's own: a wrong value there is
/// reported there, once.
fn check_limits(place: &Place, limits: &Limits, common: Option<&Limits>, found: &mut Objections) {
    for (range, message) in out_of_range(limits, common) {
        found.add(place.key(range.key), message, range.why);
    }
}
