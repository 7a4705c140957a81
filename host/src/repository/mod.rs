//! TBD
/// x
/// # Errors
/// x
pub fn check_url(_url: &str) -> crate::Result<()> { Ok(()) }
