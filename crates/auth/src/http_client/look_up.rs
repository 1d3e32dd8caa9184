//! Addresses of host names.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::vec;

use hyper_util::client::legacy::connect::dns::Name;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tower_service::Service;

/// Look-ups at a time, of all clients. A look-up blocks a thread until the name server answers, which may
/// take longer than the request that needs it: so the bound is on look-ups and not on requests.
static LOOK_UPS: Semaphore = Semaphore::const_new(2);

/// Looks host names up with the resolver of the operating system.
#[derive(Clone, Copy, Debug)]
pub(super) struct LookUp;

impl Service<Name> for LookUp {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        Box::pin(async move {
            let place = LOOK_UPS.acquire().await.map_err(io::Error::other)?;
            let found = spawn_blocking(move || {
                // The place is free when the resolver returns, also if nobody waits for the result.
                let _place = place;
                (name.as_str(), 0).to_socket_addrs()
            });
            found.await.map_err(io::Error::other)?
        })
    }
}
