//! The encodings of `working-tree-encoding` that are written here: those of Unicode, which the git library can only read, and the two
//! plain ones that the web's tables give another meaning. Git uses the C library's iconv; this follows glibc's.

/// An encoding of a checked-out file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Encoding {
    /// Two or four bytes to a unit.
    Wide { bytes: usize, order: Order, mark: Mark },
    /// One byte to a character, up to this one.
    Narrow(u32),
}

/// Which byte of a unit comes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    Little,
    Big,
}

/// Whether a byte order mark stands at the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mark {
    /// Written; when read it decides the order, and must be there.
    Needed,
    /// Not written, and not allowed.
    Forbidden,
    /// Written, in a fixed order.
    Fixed,
}

const MARK: char = '\u{feff}';

impl Encoding {
    /// Returns the encoding of a name, or none when it isn't one of these.
    pub(super) fn named(name: &[u8]) -> Option<Self> {
        let name = String::from_utf8_lossy(name).to_ascii_uppercase();
        let wide = |bytes, order, mark| Some(Self::Wide { bytes, order, mark });
        // Git takes `UTF16` for `UTF-16`.
        let short = name.strip_prefix("UTF").map(|rest| rest.strip_prefix('-').unwrap_or(rest));
        match short {
            Some("16") => return wide(2, Order::Little, Mark::Needed),
            Some("16LE") => return wide(2, Order::Little, Mark::Forbidden),
            Some("16BE") => return wide(2, Order::Big, Mark::Forbidden),
            Some("16LE-BOM") => return wide(2, Order::Little, Mark::Fixed),
            Some("16BE-BOM") => return wide(2, Order::Big, Mark::Fixed),
            Some("32") => return wide(4, Order::Little, Mark::Needed),
            Some("32LE") => return wide(4, Order::Little, Mark::Forbidden),
            Some("32BE") => return wide(4, Order::Big, Mark::Forbidden),
            _ => {}
        }
        match &*name {
            "ISO-8859-1" | "ISO8859-1" | "ISO_8859-1" | "LATIN1" | "L1" => Some(Self::Narrow(0xff)),
            "ASCII" | "US-ASCII" => Some(Self::Narrow(0x7f)),
            _ => None,
        }
    }

    /// Writes UTF-8 in this encoding. None when it isn't UTF-8, or has characters that the encoding hasn't.
    pub(super) fn encode(self, text: &[u8]) -> Option<Vec<u8>> {
        let text = std::str::from_utf8(text).ok()?;
        match self {
            Self::Narrow(last) => text.chars().map(|c| u8::try_from(u32::from(c)).ok().filter(|_| u32::from(c) <= last)).collect(),
            Self::Wide { bytes, order, mark } => {
                if text.is_empty() {
                    return None;
                }
                let mut out = Vec::with_capacity(text.len() * bytes);
                if mark != Mark::Forbidden {
                    push(&mut out, MARK, bytes, order);
                }
                for c in text.chars() {
                    push(&mut out, c, bytes, order);
                }
                Some(out)
            }
        }
    }

    /// Reads this encoding as UTF-8. None when the bytes aren't of it.
    pub(super) fn decode(self, content: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Narrow(last) => {
                let text: Option<String> = content.iter().map(|byte| (u32::from(*byte) <= last).then(|| char::from(*byte))).collect();
                text.map(String::into_bytes)
            }
            Self::Wide { bytes, order, mark } => {
                let marked = |order| unit(content.get(..bytes)?, order).filter(|first| *first == u32::from(MARK));
                let (order, start) = match mark {
                    Mark::Needed if marked(Order::Little).is_some() => (Order::Little, bytes),
                    Mark::Needed => (marked(Order::Big).map(|_| Order::Big)?, bytes),
                    Mark::Fixed => (marked(order).map(|_| order)?, bytes),
                    Mark::Forbidden => (order, 0),
                };
                let content = content.get(start..)?;
                if content.len() % bytes != 0 {
                    return None;
                }
                let units = content.chunks(bytes).map(|chunk| unit(chunk, order)).collect::<Option<Vec<u32>>>()?;
                let text: Option<String> = if bytes == 4 {
                    units.into_iter().map(char::from_u32).collect()
                } else {
                    char::decode_utf16(units.into_iter().filter_map(|unit| u16::try_from(unit).ok())).collect::<Result<_, _>>().ok()
                };
                text.map(String::into_bytes)
            }
        }
    }
}

fn push(out: &mut Vec<u8>, c: char, bytes: usize, order: Order) {
    let mut put = |value: u32| {
        let big = value.to_be_bytes();
        let used = &big[4 - bytes..];
        match order {
            Order::Big => out.extend_from_slice(used),
            Order::Little => out.extend(used.iter().rev()),
        }
    };
    if bytes == 4 {
        put(u32::from(c));
    } else {
        let mut units = [0; 2];
        for unit in c.encode_utf16(&mut units) {
            put(u32::from(*unit));
        }
    }
}

fn unit(chunk: &[u8], order: Order) -> Option<u32> {
    let fold = |value: u32, byte: &u8| value << 8 | u32::from(*byte);
    Some(match order {
        Order::Big => chunk.iter().fold(0, fold),
        Order::Little => chunk.iter().rev().fold(0, fold),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_again() {
        for name in ["UTF-16", "utf16le", "UTF-16BE", "UTF-16LE-BOM", "UTF-16BE-BOM", "UTF-32", "UTF-32LE", "UTF-32BE"] {
            let encoding = Encoding::named(name.as_bytes()).unwrap();
            for text in ["a\n", "größe 漢 🦀"] {
                assert_eq!(encoding.decode(&encoding.encode(text.as_bytes()).unwrap()).unwrap(), text.as_bytes(), "{name}");
            }
        }
        let latin = Encoding::named(b"latin1").unwrap();
        assert_eq!(latin.encode("café".as_bytes()).unwrap(), b"caf\xe9");
        assert_eq!(latin.decode(b"caf\xe9").unwrap(), "café".as_bytes());
        assert_eq!(latin.encode("€".as_bytes()), None);
        assert_eq!(Encoding::named(b"SHIFT-JIS"), None);
    }

    #[test]
    fn what_is_of_another_encoding_is_left() {
        let utf16 = Encoding::named(b"UTF-16").unwrap();
        assert_eq!(utf16.decode(b"a\0"), None, "no mark");
        assert_eq!(utf16.decode(b"\xff\xfea"), None, "half a unit");
        assert_eq!(utf16.decode(b"\xff\xfe\x00\xd8"), None, "half a pair");
        assert_eq!(utf16.encode(b"\xff"), None, "not UTF-8");
        assert_eq!(utf16.encode("a".as_bytes()).unwrap(), b"\xff\xfea\0");
    }
}
