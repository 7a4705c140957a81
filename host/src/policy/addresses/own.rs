//! The addresses of this machine: a name that leads back to the host isn't "the internet", even at a public address.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::error::{Error, Result};

/// The addresses of this machine's own interfaces.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OwnAddresses(BTreeSet<IpAddr>);

impl OwnAddresses {
    /// Asks the system.
    ///
    /// # Errors
    /// `Local` when the system doesn't say: then no address can be told to be another machine's.
    pub fn read() -> Result<Self> {
        let interfaces = if_addrs::get_if_addrs()
            .map_err(|error| Error::local("the addresses of this machine's interfaces can't be read").source(error))?;
        Ok(interfaces.into_iter().map(|interface| interface.ip()).collect())
    }

    /// Whether an address is one of them.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }

    /// Returns one that other machines could know this one by, if there is any: neither loopback nor link-local.
    #[must_use]
    pub fn outward(&self) -> Option<IpAddr> {
        self.0.iter().copied().find(|address| match address {
            IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local(),
            IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local(),
        })
    }
}

impl FromIterator<IpAddr> for OwnAddresses {
    fn from_iter<I: IntoIterator<Item = IpAddr>>(addresses: I) -> Self {
        Self(addresses.into_iter().collect())
    }
}
