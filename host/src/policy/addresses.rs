//! Which addresses an agent may be connected to: the public ones, and of these only where ordinary servers can be.
//!
//! Every judgement is made on the number. How an address was written (octal, hexadecimal, one long number, with an IPv4 tail)
//! is the parser's business and is gone by then.

mod own;
mod table;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};

pub use own::OwnAddresses;
pub use table::{METADATA, TABLE_DATE};

/// What an address is for, as far as agents are concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Class {
    /// An ordinary public address: the only kind that may be connected to.
    Public,
    /// "This network", 0.0.0.0/8: connects to the local host on many systems.
    ThisNetwork,
    /// Private use (RFC 1918).
    Private,
    /// Shared address space behind a carrier's translation (RFC 6598).
    Shared,
    /// Loopback.
    Loopback,
    /// A cloud provider's own service at an address that looks public.
    Platform,
    /// Link-local, where clouds have their metadata servers.
    LinkLocal,
    /// Protocol assignments of the IETF.
    Ietf,
    /// Documentation.
    Documentation,
    /// The AS112 name servers for private reverse zones.
    As112,
    /// Multicast tunnelling relays.
    Amt,
    /// The withdrawn anycast address of 6to4 relays.
    SixToFourRelay,
    /// Benchmarking of network devices.
    Benchmarking,
    /// Multicast.
    Multicast,
    /// Reserved for the future.
    Reserved,
    /// The limited broadcast address.
    Broadcast,
    /// The unspecified IPv6 address.
    Unspecified,
    /// An IPv4-compatible IPv6 address (withdrawn by RFC 4291).
    Compatible,
    /// An IPv4-mapped IPv6 address.
    Mapped,
    /// Behind the local-use NAT64 prefix (RFC 8215), where the embedded address can't be told.
    Nat64Local,
    /// Outside 2000::/3, the only part of IPv6 that is given out for general use.
    NotGlobal,
    /// A Teredo address.
    Teredo,
    /// A 6to4 address.
    SixToFour,
    /// An ISATAP address.
    Isatap,
    /// Unique local (RFC 4193).
    UniqueLocal,
    /// Site-local (withdrawn by RFC 3879).
    SiteLocal,
    /// An address of one of this machine's own interfaces.
    Own,
}

/// The judgement of one address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Judged {
    /// What it is for; for a NAT64 address, what the embedded IPv4 address is for.
    pub class: Class,
    /// Whether the class is that of an address embedded by NAT64 (RFC 6052, `64:ff9b::/96`).
    pub nat64: bool,
}

impl Judged {
    /// Whether an agent may be connected to it.
    #[must_use]
    pub fn is_allowed(self) -> bool {
        self.class == Class::Public
    }

    /// Returns the stable name of the reason: `ok`, or such as `ip_private` or `ip_nat64_private`.
    #[must_use]
    pub fn code(self) -> &'static str {
        let (plain, embedded) = match self.class {
            Class::Public => ("ok", "ok"),
            Class::ThisNetwork => ("ip_thisnet", "ip_nat64_thisnet"),
            Class::Private => ("ip_private", "ip_nat64_private"),
            Class::Shared => ("ip_cgnat", "ip_nat64_cgnat"),
            Class::Loopback => ("ip_loopback", "ip_nat64_loopback"),
            Class::Platform => ("ip_platform", "ip_nat64_platform"),
            Class::LinkLocal => ("ip_linklocal", "ip_nat64_linklocal"),
            Class::Ietf => ("ip_ietf", "ip_nat64_ietf"),
            Class::Documentation => ("ip_doc", "ip_nat64_doc"),
            Class::As112 => ("ip_as112", "ip_nat64_as112"),
            Class::Amt => ("ip_amt", "ip_nat64_amt"),
            Class::SixToFourRelay => ("ip_6to4relay", "ip_nat64_6to4relay"),
            Class::Benchmarking => ("ip_benchmark", "ip_nat64_benchmark"),
            Class::Multicast => ("ip_multicast", "ip_nat64_multicast"),
            Class::Reserved => ("ip_reserved", "ip_nat64_reserved"),
            Class::Broadcast => ("ip_broadcast", "ip_nat64_broadcast"),
            Class::Own => ("ip_self", "ip_nat64_self"),
            Class::Unspecified => ("ip_unspecified", "ip_unspecified"),
            Class::Compatible => ("ip_compat", "ip_compat"),
            Class::Mapped => ("ip_mapped", "ip_mapped"),
            Class::Nat64Local => ("ip_nat64_local", "ip_nat64_local"),
            Class::NotGlobal => ("ip_not_2000", "ip_not_2000"),
            Class::Teredo => ("ip_teredo", "ip_teredo"),
            Class::SixToFour => ("ip_6to4", "ip_6to4"),
            Class::Isatap => ("ip_isatap", "ip_isatap"),
            Class::UniqueLocal => ("ip_ula", "ip_ula"),
            Class::SiteLocal => ("ip_sitelocal", "ip_sitelocal"),
        };
        if self.nat64 { embedded } else { plain }
    }

    /// Says what the address is, for a person; doesn't name the address.
    #[must_use]
    pub fn why(self) -> String {
        let what = match self.class {
            Class::Public => "a public address",
            Class::ThisNetwork => "\"this network\", which connects to the local host",
            Class::Private => "private use (RFC 1918)",
            Class::Shared => "shared carrier space (RFC 6598)",
            Class::Loopback => "loopback",
            Class::Platform => "a cloud provider's internal service",
            Class::LinkLocal => "link-local, where cloud metadata servers are",
            Class::Ietf => "reserved for protocol assignments",
            Class::Documentation => "reserved for documentation",
            Class::As112 => "an AS112 name server",
            Class::Amt => "a multicast tunnelling relay",
            Class::SixToFourRelay => "a withdrawn 6to4 relay",
            Class::Benchmarking => "reserved for benchmarking",
            Class::Multicast => "multicast",
            Class::Reserved => "reserved for future use",
            Class::Broadcast => "the broadcast address",
            Class::Unspecified => "the unspecified address",
            Class::Compatible => "a withdrawn form with an IPv4 address in it",
            Class::Mapped => "an IPv4-mapped form",
            Class::Nat64Local => "behind a local NAT64, so what it leads to can't be told",
            Class::NotGlobal => "outside the global IPv6 space 2000::/3",
            Class::Teredo => "a Teredo tunnel",
            Class::SixToFour => "a 6to4 tunnel",
            Class::Isatap => "an ISATAP tunnel",
            Class::UniqueLocal => "unique local (RFC 4193)",
            Class::SiteLocal => "site-local",
            Class::Own => "one of this machine's own addresses",
        };
        if self.nat64 { format!("{what}, behind NAT64") } else { what.to_owned() }
    }
}

/// The well-known NAT64 prefix (RFC 6052 2.1): the last 32 bits are an IPv4 address.
const NAT64: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);
/// What is given out for general use (RFC 4291 2.4 and the IANA address space registry).
const GLOBAL: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// Judges an address by the tables alone.
#[must_use]
pub fn classify(address: IpAddr) -> Judged {
    match address {
        IpAddr::V4(v4) => Judged { class: classify_v4(v4), nat64: false },
        IpAddr::V6(v6) => match embedded(v6) {
            Some(v4) => Judged { class: classify_v4(v4), nat64: true },
            None => Judged { class: classify_v6(v6), nat64: false },
        },
    }
}

/// Judges an address by the tables and by this machine's own addresses.
#[must_use]
pub fn judge(address: IpAddr, own: &OwnAddresses) -> Judged {
    let judged = classify(address);
    // What every machine has says more as itself, and so does a form that is refused whatever it holds.
    let everybodys = matches!(judged.class, Class::Loopback | Class::LinkLocal);
    let ours = own.contains(address) || (judged.nat64 && own.contains(reached(address)));
    if ours && !everybodys { Judged { class: Class::Own, ..judged } } else { judged }
}

/// Whether an address is a cloud's metadata or platform service, in any form that reaches it. No operator's range lifts these.
#[must_use]
pub fn is_metadata(address: IpAddr) -> bool {
    let reached = reached(address);
    METADATA.contains(&reached)
}

/// Returns the IPv4 address that a NAT64 translator would connect to.
fn embedded(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let [.., a, b, c, d] = v6.octets();
    NAT64.contains(&v6).then(|| Ipv4Addr::new(a, b, c, d))
}

/// Returns the address that a connection would end at: the embedded one of NAT64 and mapped forms.
fn reached(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().or_else(|| embedded(v6)).map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

fn classify_v4(v4: Ipv4Addr) -> Class {
    // The narrowest block says most.
    table::V4.iter().filter(|(net, _)| net.contains(&v4)).max_by_key(|(net, _)| net.prefix_len()).map_or(Class::Public, |(_, class)| *class)
}

fn classify_v6(v6: Ipv6Addr) -> Class {
    let block = table::V6.iter().filter(|(net, _)| net.contains(&v6)).max_by_key(|(net, _)| net.prefix_len());
    if let Some((_, class)) = block {
        return *class;
    }
    if !GLOBAL.contains(&v6) {
        return Class::NotGlobal;
    }
    // RFC 5214 6.1: an interface id of 0000:5efe or 0200:5efe and an IPv4 address, under any prefix.
    if matches!(v6.segments(), [.., 0x0000 | 0x0200, 0x5efe, _, _]) {
        return Class::Isatap;
    }
    Class::Public
}

/// Addresses that an operator opened for one agent at one exact host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrivateRange {
    /// The host, as [`super::url::host_key`] writes it.
    pub host: String,
    /// The ranges.
    pub nets: Vec<IpNet>,
}

impl PrivateRange {
    /// Whether this opens an address at a host. Metadata services are never opened.
    #[must_use]
    pub fn opens(&self, host: &str, address: IpAddr) -> bool {
        self.host == host && !is_metadata(address) && self.nets.iter().any(|net| net.contains(&address))
    }
}

#[cfg(test)]
mod tests;
