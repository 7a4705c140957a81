//! Git's base85, for binary patches.

/// The alphabet of git's `base85.c` (that of RFC 1924).
const BASE85: &[u8; 85] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

/// Appends bytes in git's base85; the last group is filled with zeros and written whole, as git does.
pub(super) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for group in bytes.chunks(4) {
        let mut word = 0u32;
        for index in 0..4 {
            word = word << 8 | u32::from(group.get(index).copied().unwrap_or(0));
        }
        let mut digits = [0; 5];
        for digit in digits.iter_mut().rev() {
            *digit = BASE85[(word % 85) as usize];
            word /= 85;
        }
        out.extend_from_slice(&digits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base85_uses_gits_alphabet() {
        let mut out = Vec::new();
        encode(&[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1], &mut out);
        assert_eq!(out, b"00000|NsC00RR91");
    }
}
