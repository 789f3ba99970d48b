//! Exchanges within a service that are no requests.

use super::{Context, Exchange};

/// A process of a service calls another one of it over gRPC on a unix socket, by a method of their own: a router that
/// has each step done so, as that of TGI. Requests come to it, not to those.
pub(super) fn is_internal(exchange: &Exchange, cx: &Context<'_>) -> bool {
    let is_own = exchange.protocol == "HTTP/2" && exchange.api.as_deref().is_none_or(|api| api == "http");
    let client = exchange.client.and_then(|client| cx.processes.service(client.pid));
    is_own && exchange.local_port.is_none() && client.is_some() && client == exchange.service
}
