//! Where a broker is, and who we are there.

/// The broker to measure.
#[derive(clap::Args, Clone, Debug)]
pub struct Target {
    /// The broker's host
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,
    /// The broker's port (MQTT over TCP)
    #[arg(short, long, default_value_t = 1883)]
    pub port: u16,
    /// User name
    #[arg(short, long, value_name = "NAME")]
    pub user: Option<String>,
    /// Password
    #[arg(
        short = 'P',
        long,
        value_name = "PASSWORD",
        env = "BARID_PASSWORD",
        hide_env_values = true
    )]
    pub pw: Option<String>,
}
