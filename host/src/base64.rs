//! Base64 (RFC 4648): for object keys, HTTP Basic, mails, attachments, and the forms in which a secret may be hidden.

/// Which 64 characters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Alphabet {
    /// Section 4, with `+` and `/`.
    Standard,
    /// Section 5, with `-` and `_`: for file names and URLs.
    Url,
}

impl Alphabet {
    const fn digits(self) -> &'static [u8; 64] {
        match self {
            Self::Standard => b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
            Self::Url => b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_",
        }
    }

    fn value(self, digit: u8) -> Option<u32> {
        u32::try_from(self.digits().iter().position(|of| *of == digit)?).ok()
    }
}

/// Encodes without padding.
pub(crate) fn encode(bytes: &[u8], alphabet: Alphabet) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let word = group.iter().enumerate().fold(0_u32, |word, (at, byte)| word | u32::from(*byte) << (16 - 8 * at));
        for at in 0..=group.len() {
            text.push(char::from(alphabet.digits()[(word >> (18 - 6 * at) & 63) as usize]));
        }
    }
    text
}

/// Encodes in the standard alphabet with padding.
pub(crate) fn encode_padded(bytes: &[u8]) -> String {
    let mut text = encode(bytes, Alphabet::Standard);
    while !text.len().is_multiple_of(4) {
        text.push('=');
    }
    text
}

/// Decodes what has no padding; none for any other spelling than that of [`encode`].
pub(crate) fn decode(text: &str, alphabet: Alphabet) -> Option<Vec<u8>> {
    if text.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    let (mut bits, mut held) = (0_u32, 0);
    for digit in text.bytes() {
        bits = bits << 6 | alphabet.value(digit)?;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from(bits >> held & 0xff).ok()?);
        }
    }
    // What is left of the last digit has to be zero, so that one text stands for one value.
    (bits & ((1 << held) - 1) == 0).then_some(bytes)
}

/// Decodes the standard alphabet with padding; none for any other spelling than that of [`encode_padded`].
pub(crate) fn decode_padded(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(text);
    let padded = digits.len().next_multiple_of(4);
    if text.len() == padded { decode(digits, Alphabet::Standard) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_match_the_vectors_of_rfc_4648() {
        for (plain, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE="), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(encode_padded(plain.as_bytes()), text);
            assert_eq!(decode_padded(text).as_deref(), Some(plain.as_bytes()));
            let bare = text.trim_end_matches('=');
            assert_eq!(encode(plain.as_bytes(), Alphabet::Url), bare);
            assert_eq!(decode(bare, Alphabet::Url).as_deref(), Some(plain.as_bytes()));
        }
        assert_eq!(encode(&[0xfb, 0xff], Alphabet::Standard), "+/8");
        assert_eq!(encode(&[0xfb, 0xff], Alphabet::Url), "-_8");
    }

    #[test]
    fn one_value_has_one_spelling() {
        for text in ["Zg", "Zg=", "Zh==", "Zm9=", "=", "==", "====", "Zm9v=", "Zm9v==", "Zm 9v", "Zm9v\n", "Zm-v", "Z"] {
            assert_eq!(decode_padded(text), None, "{text:?}");
        }
        for text in ["Z", "Zh", "Zm9vZ", "Zm+v", "Zg=="] {
            assert_eq!(decode(text, Alphabet::Url), None, "{text:?}");
        }
    }
}
