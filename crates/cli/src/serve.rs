//! `barid serve`: runs the broker until a signal ends it.

use std::io::{self, IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use std::{panic, thread};

use anyhow::{Context as _, anyhow};
use barid_server::Broker;
use barid_server::descriptors::Descriptors;
use barid_server::settings::{Listener, LogFormat, Settings};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::{error, info, warn};
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::Layer as _;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use crate::check_config::logins;
use crate::config::{self, Overrides};
use crate::stored;

/// Time within which a signal that comes twice counts once.
const TWICE_WITHIN: Duration = Duration::from_secs(1);

/// Time after which a start counts as long, and interval of the reports from then on.
const LONG: Duration = Duration::from_secs(1);
const TELL_EVERY: Duration = Duration::from_secs(5);

/// Run the broker
#[derive(clap::Args)]
#[command(after_help = "\
A flag overrides its environment variable, which overrides the file, which overrides the default.

Signals:
  SIGTERM, SIGINT  notify clients, close and exit; another one, a second later, exits at once
  SIGHUP           read the file again: log level, limits, tenants, users, keys, queues, topics,
                   bindings, certificates and the strategy of shared subscriptions take effect; the log
                   names other changes

Examples:
  barid serve
  barid serve --config barid.toml
  barid serve --entities Config.json        queues and topics for clients of Service Bus
  barid serve --mqtt 127.0.0.1:2883 --ws off --log debug

Listening on addresses other than loopback needs [[users]] in the file, see `barid passwd --help`,
and for AMQP [[keys]].")]
pub struct Args {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE", env = "BARID_CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let settings = match config::load(args.config.as_deref(), &args.overrides) {
        Ok(settings) => settings,
        Err(problems) => {
            eprintln!("{problems}\nbarid: not started");
            return Ok(ExitCode::FAILURE);
        }
    };
    end_on_panic();
    stored::make_private();
    let log = Log::start(&settings)?;
    config::warnings(args.config.as_deref(), &settings)
        .iter()
        .for_each(|warning| warn!("{warning}"));
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("listening to signals")?;
    let stopping = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        // While the broker stops, a second one ends the program.
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, stopping.clone())?;
    }
    let open_files = Descriptors::raise().limit();
    let before = started.elapsed();
    // The error itself names its cause.
    let broker = while_telling(&settings.data_dir, || Broker::start(settings.clone()))
        .map_err(|error| anyhow!("{error}"))?;
    announce(&broker, &settings, started.elapsed() - before, started.elapsed());
    if open_files.is_some_and(|limit| limit < 4_096) {
        warn!(
            limit = open_files,
            "the limit on open files is low, so only few clients can connect: see `ulimit -n`"
        );
    }

    for signal in signals.forever() {
        if signal == SIGHUP {
            reload(&broker, &log, args);
        } else {
            // Some programs send a signal to a process and to its group, so it comes twice.
            thread::spawn(move || {
                thread::sleep(TWICE_WITHIN);
                stopping.store(true, Ordering::SeqCst);
            });
            info!("stopping");
            broker.shutdown();
            info!("stopped");
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Ends the process when a thread panics: a broker with a dead thread looks alive and serves nobody.
fn end_on_panic() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |panicked| {
        report(panicked);
        process::abort();
    }));
}

/// Runs `start`, and reports regularly if it takes long: nearly all of the time is spent reading the data
/// directory.
fn while_telling<T>(data_dir: &Path, start: impl FnOnce() -> T) -> T {
    let (started, starting) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let (since, mut patience) = (Instant::now(), LONG);
            while starting.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                let seconds = since.elapsed().as_secs();
                info!(seconds, "still reading the data directory {}", data_dir.display());
                patience = TELL_EVERY;
            }
        });
        let outcome = start();
        drop(started);
        outcome
    })
}

/// Prints the addresses for people. A failed write does not matter.
fn announce(broker: &Broker, settings: &Settings, start: Duration, elapsed: Duration) {
    let mut text = format!("barid {}\n", env!("CARGO_PKG_VERSION"));
    let listeners = broker.listeners();
    // Values stand below each other, whatever the longest name is.
    let has_management = listeners.iter().any(|(name, _)| *name == "management");
    let width = if has_management { "management".len() } else { "listen".len() };
    for &(name, address) in &listeners {
        let path = |listener: &Option<Listener>| match listener {
            Some(listener) => listener.path.clone(),
            None => String::new(),
        };
        let shown = match name {
            "ws" => format!("ws://{address}{}", path(&settings.listeners.ws)),
            "wss" => format!("wss://{address}{}", path(&settings.listeners.wss)),
            "admin" | "management" => format!("http://{address}"),
            "admin.https" => format!("https://{address}"),
            _ => address.to_string(),
        };
        let name = if name == "admin.https" { "admin" } else { name };
        text += &format!("  {name:<width$} {shown}\n");
    }
    let data_dir = std::path::absolute(&settings.data_dir);
    let data_dir = data_dir.as_ref().unwrap_or(&settings.data_dir).display();
    text += &format!("  {:<width$} {data_dir}", "data");
    if start > LONG {
        text += &format!(", read in {:.1} s", start.as_secs_f64());
    }
    text.push('\n');
    // The store may have users, of which the configuration does not know.
    let (title, logins) = match logins(settings) {
        ("users", _) if !broker.allows_anybody() => ("logins", "store".into()),
        other => other,
    };
    text += &format!("  {title:<width$} {logins}\n");
    if let Some(cluster) = &settings.cluster {
        let (broker, name) = (&cluster.broker, &cluster.name);
        text += &format!("  {:<width$} {broker} of {name}\n", "peer");
    }
    if let Some((_, address)) = listeners.iter().find(|(name, _)| *name == "amqp")
        && settings.keys.is_empty()
    {
        text += &format!(
            "  {:<width$} none: the connection string of the emulator is valid:\n",
            "keys"
        );
        text += &format!("  {:<width$} {}\n", "", emulator(*address));
    }
    text += &format!("ready in {:.1} ms\n", elapsed.as_secs_f64() * 1_000.0);
    let _ = io::stdout().write_all(text.as_bytes());
}

/// Returns the connection string for clients of Service Bus while there are no keys.
fn emulator(address: SocketAddr) -> String {
    format!(
        "Endpoint=sb://{address};SharedAccessKeyName=RootManageSharedAccessKey;\
         SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
    )
}

/// Applies the settings that can change while running. A broken file changes nothing.
fn reload(broker: &Broker, log: &Log, args: &Args) {
    let settings = match config::load(args.config.as_deref(), &args.overrides) {
        Ok(settings) => settings,
        Err(problems) => {
            let problems = problems.in_one_line();
            error!("nothing reloaded, the settings stay as they are: {problems}");
            return;
        }
    };
    log.set_level(&settings);
    config::warnings(args.config.as_deref(), &settings)
        .iter()
        .for_each(|warning| warn!("{warning}"));
    let report = broker.reload(&settings);
    if !report.needs_restart.is_empty() {
        warn!(
            "changed, but takes effect only after a restart: {}",
            report.needs_restart.join(", ")
        );
    }
    // The last line of a reload: programs that follow the log wait for it.
    if report.applied.is_empty() {
        info!("reloaded: no change that can take effect while running");
    } else {
        info!("reloaded: {}", report.applied.join(", "));
    }
}

/// Builds the log filter. At the finer levels the libraries that handle clients' bytes would write these out,
/// passwords among them; the libraries of the store would log their routine work.
fn filter(level: &str) -> Result<EnvFilter, tracing_subscriber::filter::ParseError> {
    let filter = EnvFilter::try_new(level)?;
    ["tungstenite=info", "rustls=info", "mio=info", "hyper=info", "fjall=warn", "lsm_tree=warn"]
        .iter()
        .try_fold(filter, |filter, directive| Ok(filter.add_directive(directive.parse()?)))
}

/// The log on standard error.
struct Log {
    filter: reload::Handle<EnvFilter, Registry>,
    /// Writes the remaining lines when it is dropped.
    _writer: WorkerGuard,
}

/// Maximum number of lines that wait for standard error, about 2 MB. Further lines are lost: no thread that serves
/// clients waits for the reader of the log.
const LINES_WAITING_MAX: usize = 8_192;

impl Log {
    fn start(settings: &Settings) -> anyhow::Result<Self> {
        let (filter, handle) = reload::Layer::new(filter(&settings.log.level)?);
        let (writer, guard) = NonBlockingBuilder::default()
            .lossy(true)
            .buffered_lines_limit(LINES_WAITING_MAX)
            .thread_name("barid-log")
            .finish(io::stderr());
        let lines = fmt::layer().with_writer(writer).with_target(false);
        let lines = match settings.log.format {
            LogFormat::Text => lines.with_ansi(io::stderr().is_terminal()).boxed(),
            LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).boxed(),
        };
        tracing_subscriber::registry().with(filter).with(lines).try_init()?;
        Ok(Self { filter: handle, _writer: guard })
    }

    /// Sets the level; the settings were checked with the same parser.
    fn set_level(&self, settings: &Settings) {
        match filter(&settings.log.level) {
            Ok(filter) => drop(self.filter.reload(filter)),
            Err(error) => error!("the log level stays as it is: {error}"),
        }
    }
}
