//! The tables: blocks of addresses that no agent is connected to.
//!
//! Sources: the IANA IPv4 and IPv6 Special-Purpose Address Registries (RFC 6890, RFC 8190)
//! <https://www.iana.org/assignments/iana-ipv4-special-registry> and <https://www.iana.org/assignments/iana-ipv6-special-registry>,
//! the IANA registries of multicast and reserved space, and what cloud providers say of their metadata services.
//! Blocks that the registries call globally reachable but where no web server lives (AS112, AMT, PCP anycast) are refused too.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

use super::Class;

/// The day on which the tables were last compared with their sources.
pub const TABLE_DATE: &str = "2026-11-30";

const fn v4(a: u8, b: u8, c: u8, d: u8, length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length)
}

const fn v6(s: [u16; 8], length: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]), length)
}

/// IPv4: all that isn't here is public. The narrowest block decides.
pub(super) const V4: &[(Ipv4Net, Class)] = &[
    (v4(0, 0, 0, 0, 8), Class::ThisNetwork),         // RFC 791 3.2
    (v4(10, 0, 0, 0, 8), Class::Private),            // RFC 1918
    (v4(100, 64, 0, 0, 10), Class::Shared),          // RFC 6598
    (v4(127, 0, 0, 0, 8), Class::Loopback),          // RFC 1122 3.2.1.3
    (v4(168, 63, 129, 16, 32), Class::Platform),     // Azure WireServer
    (v4(169, 254, 0, 0, 16), Class::LinkLocal),      // RFC 3927
    (v4(172, 16, 0, 0, 12), Class::Private),         // RFC 1918
    (v4(192, 0, 0, 0, 24), Class::Ietf),             // RFC 6890 2.1, with all its assignments
    (v4(192, 0, 2, 0, 24), Class::Documentation),    // RFC 5737
    (v4(192, 31, 196, 0, 24), Class::As112),         // RFC 7535
    (v4(192, 52, 193, 0, 24), Class::Amt),           // RFC 7450
    (v4(192, 88, 99, 0, 24), Class::SixToFourRelay), // RFC 7526
    (v4(192, 168, 0, 0, 16), Class::Private),        // RFC 1918
    (v4(192, 175, 48, 0, 24), Class::As112),         // RFC 7534
    (v4(198, 18, 0, 0, 15), Class::Benchmarking),    // RFC 2544
    (v4(198, 51, 100, 0, 24), Class::Documentation), // RFC 5737
    (v4(203, 0, 113, 0, 24), Class::Documentation),  // RFC 5737
    (v4(224, 0, 0, 0, 4), Class::Multicast),         // RFC 5771
    (v4(240, 0, 0, 0, 4), Class::Reserved),          // RFC 1112 4
    (v4(255, 255, 255, 255, 32), Class::Broadcast),  // RFC 8190, RFC 919 7
];

/// IPv6: what isn't here is public only inside 2000::/3. The narrowest block decides.
pub(super) const V6: &[(Ipv6Net, Class)] = &[
    (v6([0; 8], 96), Class::Compatible),                               // RFC 4291 2.5.5.1
    (v6([0; 8], 128), Class::Unspecified),                             // RFC 4291 2.5.2
    (v6([0, 0, 0, 0, 0, 0, 0, 1], 128), Class::Loopback),              // RFC 4291 2.5.3
    (v6([0, 0, 0, 0, 0, 0xffff, 0, 0], 96), Class::Mapped),            // RFC 4291 2.5.5.2
    (v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), Class::Nat64Local),     // RFC 8215
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23), Class::Ietf),              // RFC 2928, with all its assignments
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32), Class::Teredo),            // RFC 4380
    (v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), Class::Documentation), // RFC 3849
    (v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16), Class::SixToFour),         // RFC 3056
    (v6([0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0], 48), Class::As112),     // RFC 7534
    (v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20), Class::Documentation),     // RFC 9637
    (v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7), Class::UniqueLocal),        // RFC 4193
    (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), Class::LinkLocal),         // RFC 4291 2.5.6
    (v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10), Class::SiteLocal),         // RFC 3879
    (v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), Class::Multicast),          // RFC 4291 2.7
];

/// Metadata and platform services of clouds: refused before any range that an operator opened.
pub const METADATA: &[IpAddr] = &[
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)), // AWS, Google, Azure, Oracle, DigitalOcean and others
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 253)), // AWS: the VPC's resolver
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 123)), // AWS: time
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),   // AWS ECS: credentials of a task
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 23)),  // AWS EKS: credentials of a pod
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)), // AWS EKS
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x253)), // AWS: the VPC's resolver
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)), // AWS
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)), // Google
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)), // Alibaba
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),     // Oracle, classic
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),   // Azure WireServer
];
