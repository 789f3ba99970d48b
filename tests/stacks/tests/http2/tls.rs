//! HTTP/2 over TLS, agreed on in the handshake (ALPN).

use std::path::Path;

use anyhow::{Result, ensure};
use stacks::peer::Peer;
use stacks::watch::Watch;

use crate::nested;
use crate::servers::hyper;
use crate::tls::{self, Certificate};

/// hypercorn with a certificate: Python's `ssl` in asyncio's hands.
fn peer(dir: &Path) -> Result<Peer> {
    let certificate = Certificate::new(dir)?;
    Peer::stamped_with("http2.py", certificate.variables(), dir)
}

pub(super) fn hypercorn(dir: &Path) -> Result<()> {
    exercise([200, 4], dir)
}

/// A hundred streams at a time: many frames in a record, and many records in a write.
pub(super) fn r2_concurrent_streams(dir: &Path) -> Result<()> {
    exercise([300, 100], dir)
}

/// Streams that are under way when the agent comes.
pub(super) fn r16_older(dir: &Path) -> Result<()> {
    super::older(peer(dir)?, "httpx", true, dir)
}

/// nginx takes what its clients send at the same time on one connection apart, for a server of HTTP/1.1 behind it.
pub(super) fn nginx_in_front(dir: &Path) -> Result<()> {
    let certificate = Certificate::new(dir)?;
    let mut behind = hyper(dir)?;
    let mut front = certificate.nginx("ssl http2", behind.port, dir)?;
    let mut watch = Watch::ports(&[front.port, behind.port], dir)?;
    tls::wait_attached(&mut watch)?;
    let mut client = super::client("httpx", true, front.port, [0, 100, 4], None, dir)?;
    let clients = super::seen(&mut client, "httpx", dir)?;
    let records = nested::finish(watch, front.port, clients.len())?;
    nested::end(&mut front)?;
    behind.stop()?;
    let foreign = records.iter().find(|record| record.protocol != "HTTP/2");
    ensure!(foreign.is_none(), "not seen as HTTP/2: {foreign:#?}");
    nested::judge(&records, &behind.truth()?, &clients, 1, dir)
}

fn exercise([count, at_once]: [u32; 2], dir: &Path) -> Result<()> {
    let mut peer = peer(dir)?;
    let mut watch = Watch::ports(&[peer.port], dir)?;
    tls::wait_attached(&mut watch)?;
    let mut client = super::client("httpx", true, peer.port, [0, count, at_once], None, dir)?;
    let clients = super::seen(&mut client, "httpx", dir)?;
    watch.records(peer.port, clients.len())?;
    let tls = tls::tls(&watch)?;
    super::finish(watch, &mut peer, &clients, dir)?;
    tls::all_in_sight(tls)
}
