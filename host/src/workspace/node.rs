//! Objects in memory.

/// Mixes numbers into one that looks random (the finaliser of splitmix64, Steele et al. 2014).
pub(super) fn mix(parts: &[u64]) -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for part in parts {
        state = state.wrapping_add(*part).wrapping_mul(0xff51_afd7_ed55_8ccd);
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^= state >> 31;
    }
    state
}
