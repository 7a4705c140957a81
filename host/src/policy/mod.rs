//! What an agent may do. A denial is a value that says which line of the configuration would allow it.
//!
//! `egress.rs` is the gate that everything passes on its way out; the other files are its parts: URLs, hosts, headers, addresses,
//! credentials, name servers.

pub mod addresses;
pub mod credentials;
pub mod egress;
pub mod grants;
pub mod headers;
pub mod hosts;
pub mod redirects;
pub mod refused;
pub mod repositories;
pub mod resolve;
pub mod url;
