//! The two encodings of 3 or 4 bytes that git's world needs: base64 (RFC 4648) for HTTP Basic, and git's base85 for binary patches.

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// The alphabet of git's `base85.c` (that of RFC 1924).
const BASE85: &[u8; 85] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

/// Encodes with padding.
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut word = 0u32;
        for index in 0..3 {
            word = word << 8 | u32::from(group.get(index).copied().unwrap_or(0));
        }
        for index in 0..4 {
            text.push(if index <= group.len() { char::from(BASE64[(word >> (18 - 6 * index) & 63) as usize]) } else { '=' });
        }
    }
    text
}

/// Appends bytes in git's base85; the last group is filled with zeros and written whole, as git does.
pub(super) fn encode85(bytes: &[u8], out: &mut Vec<u8>) {
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
    fn base64_matches_the_vectors_of_rfc_4648() {
        for (plain, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE="), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(encode(plain.as_bytes()), text);
        }
    }

    #[test]
    fn base85_uses_gits_alphabet() {
        let mut out = Vec::new();
        encode85(&[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1], &mut out);
        assert_eq!(out, b"00000|NsC00RR91");
    }
}
