//! Chance: every draw of a simulation comes from here, and so from its seed.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use landfall::random::Random;

/// A generator of pseudo-random numbers (SplitMix64): small, fast, and the same everywhere.
#[derive(Debug)]
pub struct Dice(Mutex<u64>);

impl Dice {
    /// Starts one. Different `stream`s of a seed are independent, so that a draw more in one place doesn't change the other.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        let dice = Self(Mutex::new(seed ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93)));
        // Neighbouring seeds begin alike; after two steps nothing is left of that.
        dice.next();
        dice.next();
        dice
    }

    /// Returns 64 random bits.
    pub fn next(&self) -> u64 {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `limit`, 0 for none.
    pub fn below(&self, limit: u64) -> u64 {
        self.next().checked_rem(limit).unwrap_or(0)
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn between(&self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Returns whether something happens that happens so many times in ten thousand.
    pub fn chance(&self, of_10_000: u64) -> bool {
        self.below(10_000) < of_10_000
    }

    /// Returns one of several, none of which is better than the others.
    pub fn pick<T: Copy>(&self, from: &[T]) -> T {
        let index = usize::try_from(self.below(from.len() as u64)).unwrap_or(0);
        from[index]
    }

    /// Returns a span; short ones are as likely as long ones, in orders of magnitude.
    pub fn span(&self, shortest: Duration, longest: Duration) -> Duration {
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let (shortest, longest) = (nanos(shortest).max(1), nanos(longest).max(1));
        let doublings = u64::from((longest / shortest).max(1).ilog2());
        let least = shortest << self.below(doublings + 1);
        Duration::from_nanos(self.between(least, (2 * least).min(longest).max(least)))
    }
}

impl Random for Dice {
    fn fill(&self, buffer: &mut [u8]) {
        for part in buffer.chunks_mut(8) {
            let bytes = self.next().to_le_bytes();
            part.copy_from_slice(&bytes[..part.len()]);
        }
    }
}
