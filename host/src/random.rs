//! Randomness as an input: nonces and ids come from here, so that a simulation can seed them.

use std::fmt;
use std::sync::Arc;

/// A source of random bytes that nobody can guess.
pub trait Random: Send + Sync + fmt::Debug {
    /// Fills `buffer` with random bytes.
    fn fill(&self, buffer: &mut [u8]);
}

/// The operating system's generator.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&self, buffer: &mut [u8]) {
        // Without the kernel's generator no nonce is safe, and there is nothing left to return to.
        #[expect(
            clippy::expect_used,
            clippy::disallowed_methods,
            reason = "the one place that asks the kernel; it fails only where there is no generator"
        )]
        getrandom::fill(buffer).expect("the operating system's random generator");
    }
}

/// A shared source of randomness.
pub type SharedRandom = Arc<dyn Random>;

/// Returns `N` random bytes.
#[must_use]
pub fn bytes<const N: usize>(random: &dyn Random) -> [u8; N] {
    let mut buffer = [0; N];
    random.fill(&mut buffer);
    buffer
}
