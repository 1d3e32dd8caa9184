//! Scenarios in which Microsoft's SDK talks to a broker: the state store, its locks, lost connections, a killed broker.
//!
//!     azure-sdk list
//!     azure-sdk ADDRESS TENANT SCENARIO [PASSWORD]
//!
//! Prints `ok SCENARIO` and ends with 0, or says on standard error what is wrong, prints `FAILED SCENARIO` and ends with 1.
//! A scenario that needs a fault prints `do FAULT` and goes on when it reads a line.

mod client;
mod scenarios;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::Broker;

/// The longest scenario takes a quarter of it.
const SCENARIO_MAX: Duration = Duration::from_secs(100);

/// Whether anything has panicked, also a task of the SDK that nobody waits for.
static PANICKED: AtomicBool = AtomicBool::new(false);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (address, tenant, scenario, password) = match arguments.as_slice() {
        [list] if list == "list" => {
            println!("{}", scenarios::NAMES.join("\n"));
            return ExitCode::SUCCESS;
        }
        [address, tenant, scenario] => (address, tenant, scenario, None),
        [address, tenant, scenario, password] => (address, tenant, scenario, Some(password)),
        _ => {
            eprintln!("usage: azure-sdk ADDRESS TENANT SCENARIO [PASSWORD], or azure-sdk list");
            return ExitCode::from(2);
        }
    };
    if !scenarios::NAMES.contains(&scenario.as_str()) {
        eprintln!("there is no scenario {scenario}");
        return ExitCode::from(2);
    }

    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICKED.store(true, Ordering::SeqCst);
        tell(panic);
    }));
    let broker = Broker::new(address, tenant, password.cloned());
    let name = scenario.clone();
    let task = tokio::spawn(async move { scenarios::run(&name, broker).await });
    let ended = tokio::time::timeout(SCENARIO_MAX, task).await;
    if ended.is_err() {
        eprintln!("not done after {} s", SCENARIO_MAX.as_secs());
    }
    if matches!(ended, Ok(Ok(()))) && !PANICKED.load(Ordering::SeqCst) {
        println!("ok {scenario}");
        ExitCode::SUCCESS
    } else {
        println!("FAILED {scenario}");
        ExitCode::FAILURE
    }
}
