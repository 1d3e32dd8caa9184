//! A gate that lets a bounded number of askers through at a time, in fair turns.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::asker::Asker;
use crate::turns::Turns;

/// A gate before a scarce resource: the threads that verify passwords, the connections to a database or a
/// service. At most as many askers as the gate has permits are behind it. The others wait in turns by tenant and
/// address.
#[derive(Debug)]
pub struct Gate(Mutex<State>);

#[derive(Debug)]
struct State {
    free: usize,
    waiting: Turns<oneshot::Sender<Permit>>,
}

/// The right to be behind a gate, given back on drop.
#[derive(Debug)]
pub struct Permit(Option<Arc<Gate>>);

impl Gate {
    /// Creates a gate with `permits` permits, before which at most `waiting_max` askers wait.
    pub fn new(permits: usize, waiting_max: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { free: permits, waiting: Turns::new(waiting_max) })))
    }

    /// Waits for a permit. `None`: too many wait, most of them from the same tenant and address.
    pub async fn enter(self: &Arc<Self>, asker: Asker<'_>) -> Option<Permit> {
        let (receiver, displaced) = {
            let mut state = self.0.lock();
            if state.free > 0 {
                state.free -= 1;
                return Some(Permit(Some(Arc::clone(self))));
            }
            let (sender, receiver) = oneshot::channel();
            let displaced = state.waiting.push(asker.tenant, asker.address, sender);
            (receiver, displaced)
        };
        // A sender that is dropped tells its receiver that there will be no permit.
        drop(displaced);
        receiver.await.ok()
    }

    /// Returns the number of askers that wait.
    pub fn waiting(&self) -> usize {
        self.0.lock().waiting.len()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(gate) = self.0.take() else { return };
        loop {
            let next = {
                let mut state = gate.0.lock();
                let next = state.waiting.pop();
                if next.is_none() {
                    state.free += 1;
                }
                next
            };
            let Some(next) = next else { return };
            match next.send(Permit(Some(Arc::clone(&gate)))) {
                Ok(()) => return,
                // The asker has given up. Its permit must not run this function again.
                Err(mut permit) => permit.0 = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(tenant: &str) -> Asker<'_> {
        Asker { tenant, address: std::net::Ipv4Addr::LOCALHOST.into() }
    }

    #[tokio::test]
    async fn permits_go_to_those_who_wait_and_come_back() {
        let gate = Gate::new(1, 2);
        let first = gate.enter(of("a")).await.unwrap();
        let enter = |tenant: &'static str| {
            let gate = Arc::clone(&gate);
            tokio::spawn(async move { gate.enter(of(tenant)).await })
        };
        let gone = enter("a");
        let second = enter("b");
        tokio::task::yield_now().await;
        assert_eq!(gate.waiting(), 2);
        assert!(gate.enter(of("a")).await.is_none(), "too many wait");
        gone.abort();
        assert!(gone.await.is_err());
        drop(first);
        let second = second.await.unwrap().unwrap();
        assert_eq!((gate.waiting(), gate.0.lock().free), (0, 0));
        drop(second);
        assert_eq!(gate.0.lock().free, 1);
    }

    #[tokio::test]
    async fn a_permit_that_nobody_receives_is_not_lost() {
        let gate = Gate::new(1, 2);
        let first = gate.enter(of("a")).await.unwrap();
        let waiting = gate.enter(of("a"));
        let mut waiting = Box::pin(waiting);
        assert!(futures_poll(&mut waiting).is_pending());
        drop(first);
        drop(waiting);
        assert_eq!(gate.0.lock().free, 1);
    }

    #[tokio::test]
    async fn look_ups_of_the_broker_have_turns_of_their_own() {
        let gate = Gate::new(1, 100);
        let first = gate.enter(of("a")).await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let enter = |asker: Asker<'static>| {
            let (gate, order) = (Arc::clone(&gate), Arc::clone(&order));
            tokio::spawn(async move {
                let _permit = gate.enter(asker).await.unwrap();
                order.lock().push(asker.tenant);
            })
        };
        let askers = [Asker::BROKER, Asker::BROKER, Asker::BROKER, of("a"), of("a"), of("b")];
        let entering = askers.map(enter);
        tokio::task::yield_now().await;
        drop(first);
        for one in entering {
            one.await.unwrap();
        }
        assert_eq!(*order.lock(), ["/", "a", "b", "/", "a", "/"]);
    }

    fn futures_poll<F: Future + Unpin>(future: &mut F) -> std::task::Poll<F::Output> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        std::pin::Pin::new(future).poll(&mut context)
    }
}
