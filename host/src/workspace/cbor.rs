//! Deterministic CBOR (RFC 8949 section 4.2.1), the small part that the formats use: integers, byte and text strings, arrays and null.
//!
//! The reader accepts only the deterministic form (shortest heads, definite lengths), so that bytes and values correspond one to one
//! and no re-encoding is needed to prove it. It allocates nothing: strings are slices of the input, and a count is refused
//! as soon as it is larger than the bytes that are left.

use bytes::Bytes;

const UNSIGNED: u8 = 0;
const NEGATIVE: u8 = 1;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;
const NULL: u8 = 0xf6;

/// Where encoded bytes go: into a vector, or nowhere but counted.
pub(crate) trait Out {
    /// Takes the next bytes.
    fn put(&mut self, bytes: &[u8]);
}

impl Out for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Counts encoded bytes.
#[derive(Debug, Default)]
pub(crate) struct Count(pub(crate) usize);

impl Out for Count {
    fn put(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }
}

fn head(out: &mut impl Out, major: u8, value: u64) {
    let major = major << 5;
    let be = value.to_be_bytes();
    match value {
        0..24 => out.put(&[major | be[7]]),
        24..0x100 => out.put(&[major | 24, be[7]]),
        0x100..0x1_0000 => out.put(&[major | 25, be[6], be[7]]),
        0x1_0000..0x1_0000_0000 => out.put(&[major | 26, be[4], be[5], be[6], be[7]]),
        _ => {
            out.put(&[major | 27]);
            out.put(&be);
        }
    }
}

/// Writes an unsigned integer.
pub(crate) fn put_uint(out: &mut impl Out, value: u64) {
    head(out, UNSIGNED, value);
}

/// Writes a signed integer.
pub(crate) fn put_int(out: &mut impl Out, value: i64) {
    match u64::try_from(value) {
        Ok(value) => head(out, UNSIGNED, value),
        // -1 - n is coded as n: the bitwise complement.
        Err(_) => head(out, NEGATIVE, (!value).cast_unsigned()),
    }
}

/// Writes a byte string.
pub(crate) fn put_bytes(out: &mut impl Out, bytes: &[u8]) {
    head(out, BYTES, bytes.len() as u64);
    out.put(bytes);
}

/// Writes a text string.
pub(crate) fn put_text(out: &mut impl Out, text: &str) {
    head(out, TEXT, text.len() as u64);
    out.put(text.as_bytes());
}

/// Writes the head of an array of so many items.
pub(crate) fn put_array(out: &mut impl Out, items: usize) {
    head(out, ARRAY, items as u64);
}

/// Writes null.
pub(crate) fn put_null(out: &mut impl Out) {
    out.put(&[NULL]);
}

/// Why bytes can't be read: a fragment that follows "the page ".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// Reads the deterministic form, and nothing else.
#[derive(Debug)]
pub(crate) struct Reader<'b> {
    bytes: &'b Bytes,
    at: usize,
}

impl<'b> Reader<'b> {
    /// Starts at the first byte.
    pub(crate) fn new(bytes: &'b Bytes) -> Self {
        Self { bytes, at: 0 }
    }

    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn take(&mut self, len: usize) -> Result<&'b [u8], Malformed> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.bytes.len()).ok_or(Malformed("ends too early"))?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn any_head(&mut self) -> Result<(u8, u64), Malformed> {
        let first = self.take(1)?[0];
        let (len, least) = match first & 0x1f {
            short @ 0..24 => return Ok((first >> 5, u64::from(short))),
            24 => (1, 24),
            25 => (2, 0x100),
            26 => (4, 0x1_0000),
            27 => (8, 0x1_0000_0000),
            _ => return Err(Malformed("has a length of no fixed size")),
        };
        let value = self.take(len)?.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
        if value < least {
            return Err(Malformed("has a number that isn't in its shortest form"));
        }
        Ok((first >> 5, value))
    }

    fn head(&mut self, major: u8) -> Result<u64, Malformed> {
        match self.any_head()? {
            (found, value) if found == major => Ok(value),
            _ => Err(Malformed("has an item of another type than its place asks for")),
        }
    }

    /// Reads an unsigned integer.
    pub(crate) fn uint(&mut self) -> Result<u64, Malformed> {
        self.head(UNSIGNED)
    }

    /// Reads an unsigned integer that fits 32 bits.
    pub(crate) fn uint32(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.uint()?).map_err(|_| Malformed("has a number that is too large"))
    }

    /// Reads a signed integer.
    pub(crate) fn int(&mut self) -> Result<i64, Malformed> {
        let (major, value) = self.any_head()?;
        let value = i64::try_from(value).map_err(|_| Malformed("has a number that is too large"))?;
        match major {
            UNSIGNED => Ok(value),
            NEGATIVE => Ok(!value),
            _ => Err(Malformed("has an item of another type than its place asks for")),
        }
    }

    /// Reads a byte string: a slice that shares the input's memory.
    pub(crate) fn bytes(&mut self) -> Result<Bytes, Malformed> {
        let len = usize::try_from(self.head(BYTES)?).map_err(|_| Malformed("ends too early"))?;
        let start = self.at;
        self.take(len)?;
        Ok(self.bytes.slice(start..self.at))
    }

    /// Reads a byte string of a digest's length.
    pub(crate) fn digest(&mut self) -> Result<[u8; 32], Malformed> {
        if self.head(BYTES)? != 32 {
            return Err(Malformed("has an id that isn't 32 bytes long"));
        }
        self.take(32)?.try_into().map_err(|_| Malformed("ends too early"))
    }

    /// Reads a text string.
    pub(crate) fn text(&mut self) -> Result<&'b str, Malformed> {
        let len = usize::try_from(self.head(TEXT)?).map_err(|_| Malformed("ends too early"))?;
        std::str::from_utf8(self.take(len)?).map_err(|_| Malformed("has text that isn't UTF-8"))
    }

    /// Reads the head of an array. Every item has at least one byte, so the count is bounded by what is left.
    pub(crate) fn array(&mut self) -> Result<usize, Malformed> {
        let items = self.head(ARRAY)?;
        usize::try_from(items).ok().filter(|items| *items <= self.left()).ok_or(Malformed("has an array of more items than it has bytes"))
    }

    /// Reads the head of an array of exactly so many items.
    pub(crate) fn array_of(&mut self, items: usize) -> Result<(), Malformed> {
        if self.array()? == items { Ok(()) } else { Err(Malformed("has an array of the wrong length")) }
    }

    /// Reads null when it is next.
    pub(crate) fn null(&mut self) -> bool {
        let next = self.bytes.get(self.at) == Some(&NULL);
        self.at += usize::from(next);
        next
    }

    /// Returns whether an array is next.
    pub(crate) fn at_array(&self) -> bool {
        self.bytes.get(self.at).is_some_and(|byte| byte >> 5 == ARRAY)
    }

    /// Checks that nothing is left.
    pub(crate) fn end(&self) -> Result<(), Malformed> {
        if self.left() == 0 { Ok(()) } else { Err(Malformed("has bytes after its end")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(value: i64) -> Vec<u8> {
        let mut out = Vec::new();
        put_int(&mut out, value);
        out
    }

    #[test]
    fn integers_follow_rfc_8949_appendix_a() {
        for (value, hex) in [
            (0, "00"),
            (23, "17"),
            (24, "1818"),
            (100, "1864"),
            (1000, "1903e8"),
            (1_000_000, "1a000f4240"),
            (1_000_000_000_000, "1b000000e8d4a51000"),
            (-1, "20"),
            (-100, "3863"),
            (-1000, "3903e7"),
            (i64::MAX, "1b7fffffffffffffff"),
            (i64::MIN, "3b7fffffffffffffff"),
        ] {
            assert_eq!(hex::encode(encoded(value)), hex);
            let bytes = Bytes::from(encoded(value));
            assert_eq!(Reader::new(&bytes).int(), Ok(value));
        }
    }

    #[test]
    fn other_forms_of_a_number_are_refused() {
        for hex in
            ["1817", "190018", "1900ff", "1a0000ffff", "1b00000000ffffffff", "1f", "3f", "1c", "18", "1b7fff", "1bffffffffffffffff", "40"]
        {
            let bytes = Bytes::from(hex::decode(hex).unwrap());
            assert!(Reader::new(&bytes).int().is_err(), "{hex}");
        }
    }

    #[test]
    fn counts_and_lengths_beyond_the_input_are_refused() {
        for hex in ["9b7fffffffffffffff", "9a00989680", "9f00ff", "8200"] {
            let bytes = Bytes::from(hex::decode(hex).unwrap());
            assert!(Reader::new(&bytes).array().is_err(), "{hex}");
        }
        for hex in ["5b7fffffffffffffff", "5f4100ff", "420a", "6161"] {
            let bytes = Bytes::from(hex::decode(hex).unwrap());
            assert!(Reader::new(&bytes).bytes().is_err(), "{hex}");
        }
    }
}
