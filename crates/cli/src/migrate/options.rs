//! The options of mosquitto.conf (2.0 and 2.1): what each belongs to, and why some have no counterpart.

/// Options that belong to the listener before them.
pub const LISTENER: &[&str] = &[
    "accept_protocol_versions",
    "bind_interface",
    "cafile",
    "capath",
    "certfile",
    "ciphers",
    "ciphers_tls1.3",
    "crlfile",
    "dhparamfile",
    "disable_client_cert_date_checks",
    "enable_proxy_protocol",
    "http_dir",
    "keyfile",
    "listener_allow_anonymous",
    "listener_auto_id_prefix",
    "max_connections",
    "max_qos",
    "max_topic_alias",
    "max_topic_alias_broker",
    "maximum_qos",
    "mount_point",
    "protocol",
    "proxy_protocol_v2_require_tls",
    "psk_hint",
    "require_certificate",
    "socket_domain",
    "tls_engine",
    "tls_engine_kpass_sha1",
    "tls_keyform",
    "tls_version",
    "use_identity_as_username",
    "use_subject_as_username",
    "use_username_as_clientid",
    "websockets_origin",
];

/// Options that belong to the listener before them if `per_listener_settings` is true.
pub const SECURITY: &[&str] = &[
    "acl_file",
    "allow_anonymous",
    "allow_zero_length_clientid",
    "auth_plugin",
    "auto_id_prefix",
    "password_file",
    "plugin",
    "psk_file",
];

/// Options of a `connection`.
const BRIDGE: &[&str] = &[
    "address",
    "addresses",
    "cleansession",
    "clientid",
    "idle_timeout",
    "keepalive_interval",
    "local_cleansession",
    "local_clientid",
    "local_password",
    "local_username",
    "notification_topic",
    "notifications",
    "notifications_local_only",
    "password",
    "remote_clientid",
    "remote_password",
    "remote_username",
    "restart_timeout",
    "round_robin",
    "start_type",
    "threshold",
    "topic",
    "try_private",
    "username",
];

/// Whether an option belongs to a `connection`.
pub fn is_of_bridge(name: &str) -> bool {
    name.starts_with("bridge_") || BRIDGE.contains(&name)
}

/// Returns the reason for which an option is not carried over.
pub fn reason(name: &str) -> &'static str {
    const PLUGIN: &str = "plugins do not exist; their users must be added in another way";
    const NEVER_SAVED: &str = "not needed: acknowledged messages are on disk";
    const SUITES: &str = "TLS 1.2 and 1.3, with the cipher suites of rustls";
    const STDERR: &str = "the log goes to standard error, with its own time stamps";
    const SYSTEMD: &str = "not needed: the program stays in the foreground, and systemd starts it";
    match name {
        "accept_protocol_versions" => "all versions of MQTT are accepted",
        "allow_duplicate_messages" => {
            "a client gets a message once, or once for each subscription, as MQTT 5 allows"
        }
        "allow_zero_length_clientid" => "clients without a client identifier are always accepted",
        "auto_id_prefix" | "listener_auto_id_prefix" => {
            "the broker's client identifiers have a fixed form"
        }
        "autosave_interval" | "autosave_on_changes" => NEVER_SAVED,
        "bind_interface" => "addresses, not interfaces; set the address of the listener",
        "check_retain_source" => {
            "the rights of a publisher are not checked again when a retained message is sent"
        }
        "ciphers" | "ciphers_tls1.3" | "dhparamfile" | "tls_version" => SUITES,
        "clientid_prefixes" => "client identifiers are not restricted",
        "connection_messages" => "the level `debug` of the log has connections",
        "disable_client_cert_date_checks" => "client certificates must be within their dates",
        "enable_control_api" => "the admin API has another form",
        "global_plugin" | "plugin" | "auth_plugin" | "plugin_load" | "plugin_use" => PLUGIN,
        "http_dir" => "no files are served over HTTP",
        "include_dir" => "only the main file can have it",
        "log_dest" | "log_facility" | "log_timestamp" | "log_timestamp_format" => STDERR,
        "max_inflight_bytes" => "messages in flight are limited by number (`max_inflight`)",
        "memory_limit" => "memory is limited by the limits of each tenant",
        "mount_point" => {
            "tenants take the place of mount points: user names of the form {tenant}/{client}"
        }
        "packet_buffer_size" => "buffers grow with what arrives",
        "persistence" => {
            "not needed: sessions and messages are always stored, apart from `durability = \"memory\"`"
        }
        "persistence_file" | "persistence_location" | "retained_persistence" => {
            "the data is in `data_dir`; sessions and messages in mosquitto.db are not carried over"
        }
        "pid_file" | "user" => SYSTEMD,
        "proxy_protocol_v2_require_tls" => "connections without TLS behind the proxy are accepted",
        "psk_file" | "psk_hint" => "pre-shared keys do not exist; use certificates",
        "queue_qos0_messages" => "QoS 0 is never kept for clients that are not connected",
        "retain_expiry_interval" => "retained messages expire only as their publisher says",
        "retry_interval" => "messages are sent again only after a new connection",
        "set_tcp_nodelay" => "not needed: it is always on",
        "tls_engine" | "tls_engine_kpass_sha1" | "tls_keyform" => "private keys are in files",
        "upgrade_outgoing_qos" => {
            "messages are never sent with a higher QoS than they were published with"
        }
        "use_identity_as_username" | "use_subject_as_username" => {
            "add a back end [auth.certificate.NAME] to the chain of [auth]"
        }
        "use_username_as_clientid" => "client identifiers are those of the clients",
        "websockets_headers_size" | "websockets_log_level" => "not needed",
        _ if name.starts_with("auth_opt_") || name.starts_with("plugin_opt_") => PLUGIN,
        _ if name.starts_with("auth_plugin_") => PLUGIN,
        _ => "not an option that this program knows",
    }
}
