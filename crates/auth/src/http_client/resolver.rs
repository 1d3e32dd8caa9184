//! Addresses of the host names in URLs.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::vec;

use hyper_util::client::legacy::connect::dns::Name;
use tower_service::Service;

use crate::remote::look_up::LookUp;

/// Lets a connector look up host names with [`LookUp`].
#[derive(Clone, Debug, Default)]
pub(super) struct Resolver(LookUp);

impl Service<Name> for Resolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let names = self.0.clone();
        Box::pin(async move { Ok(names.addresses(name.as_str()).await?.into_iter()) })
    }
}
