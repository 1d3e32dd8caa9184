//! Scenarios of Microsoft's SDK with a broker: the state store, its locks, lost connections, a killed broker.
//!
//!     azure-sdk list
//!     azure-sdk ADDRESS TENANT SCENARIO [PASSWORD]
//!
//! Prints `ok SCENARIO` and exits with 0. On failure it prints the reason to standard error and
//! `FAILED SCENARIO` to standard output, and exits with 1. A scenario that needs a fault prints `do FAULT`, and
//! continues after it has read the line `done`.

mod client;
mod scenarios;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::Broker;

/// Time limit of a scenario. The longest scenario takes a quarter of it.
const SCENARIO_MAX: Duration = Duration::from_secs(100);

/// Whether any task has panicked, including tasks of the SDK that no other task waits for.
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
