//! Connections that wait for the next request. One is used again only by the same agent, for the same scheme, host and port, at an
//! address that was judged again: nothing is shared between agents or names.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::connect::Connection;
use crate::clock::SharedClock;
use crate::policy::url::Origin;

/// How long a connection waits.
const IDLE: Duration = Duration::from_secs(30);
/// Most connections that wait under one key, and in all.
const IDLE_PER_KEY: usize = 8;
const IDLE_MAX: usize = 256;

/// What a connection belongs to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key {
    pub(super) agent: String,
    pub(super) origin: Origin,
    pub(super) address: IpAddr,
}

/// The connections of a process.
pub(super) struct Pool {
    clock: SharedClock,
    waiting: Mutex<HashMap<Key, Vec<(Connection, Duration)>>>,
}

impl Pool {
    pub(super) fn new(clock: SharedClock) -> Self {
        Self { clock, waiting: Mutex::default() }
    }

    /// Returns a connection to one of these addresses that can carry a request. One of HTTP/2 stays for others to use too.
    pub(super) fn take(&self, agent: &str, origin: &Origin, addresses: &[IpAddr]) -> Option<(Connection, IpAddr)> {
        let now = self.clock.boot();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        for address in addresses {
            let key = Key { agent: agent.to_owned(), origin: origin.clone(), address: *address };
            let Some(connections) = waiting.get_mut(&key) else { continue };
            connections.retain(|(connection, since)| now.saturating_sub(*since) < IDLE && connection.is_usable());
            let found = match connections.last_mut() {
                Some((Connection::H2(sender), since)) => {
                    *since = now;
                    Some(Connection::H2(sender.clone()))
                }
                Some((Connection::H1(_), _)) => connections.pop().map(|(connection, _)| connection),
                None => None,
            };
            if connections.is_empty() {
                waiting.remove(&key);
            }
            if let Some(found) = found {
                return Some((found, *address));
            }
        }
        None
    }

    /// Takes a connection back.
    pub(super) fn put(&self, key: Key, connection: Connection) {
        let now = self.clock.boot();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.values().map(Vec::len).sum::<usize>() >= IDLE_MAX {
            waiting.retain(|_, connections| {
                connections.retain(|(connection, since)| now.saturating_sub(*since) < IDLE && connection.is_usable());
                !connections.is_empty()
            });
        }
        let full = waiting.values().map(Vec::len).sum::<usize>() >= IDLE_MAX;
        let connections = waiting.entry(key).or_default();
        let is_there = connection.is_h2() && connections.iter().any(|(other, _)| other.is_h2());
        if !full && !is_there && connections.len() < IDLE_PER_KEY {
            connections.push((connection, now));
        }
    }
}
