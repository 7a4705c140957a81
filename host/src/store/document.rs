//! Mutable JSON objects: one line of JSON with a header that notices every changed byte.
//!
//! ```text
//! {"landfall":"head","version":1,"sha256":"<64 hex>","nonce":"<32 hex>","nonces":["<32 hex>", ...],"body":{...}}\n
//! ```
//!
//! - `landfall` names the kind of object, `version` its format.
//! - `sha256` is the SHA-256 of `landfall:document:<kind>:<version>\n` and of all bytes that follow the comma after it.
//! - `nonce` is fresh for every write, so that no two writes have equal bytes (an ETag may be a content hash);
//!   `nonces` are those of up to 15 writes before it, newest first, so that a writer whose answer was lost finds its own.
//!
//! The bytes up to the digest are exactly as shown, without blanks. Header and body together are at most [`DOCUMENT_MAX`] bytes.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::keys::Nonce;
use crate::error::{Error, Result};
use crate::id::Digest;

/// Longest stored document in bytes, its header included. Longer ones are refused before they are read.
pub const DOCUMENT_MAX: usize = 64 << 10;

/// Longest header in bytes: what a body has to leave free.
pub const HEADER_MAX: usize = 1 << 10;

/// How many write nonces an object keeps, its own included.
pub const NONCES_KEPT: usize = 16;

/// A value that is stored as a document.
pub trait Document: Serialize + DeserializeOwned + Send + Sync {
    /// The kind's name in the header: lower-case letters and `-`.
    const KIND: &'static str;
    /// The format version that this program writes, and the newest that it reads.
    const VERSION: u32;
    /// The stable error code of a damaged object of this kind.
    const DAMAGED: &'static str;

    /// Checks what the types don't say: bounds of lists and lengths of texts.
    ///
    /// # Errors
    /// `Damaged`, saying which rule was broken; `TooNew` for content that only a newer program understands.
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// A document's bytes and their SHA-256.
#[derive(Clone, Debug)]
pub(crate) struct Encoded {
    /// The object's bytes.
    pub(crate) bytes: bytes::Bytes,
    /// SHA-256 of the bytes.
    pub(crate) digest: Digest,
}

/// What a document's bytes say.
#[derive(Debug)]
pub(crate) struct Decoded<T> {
    /// The body.
    pub(crate) value: T,
    /// The write nonces, newest first; the first is this write's.
    pub(crate) nonces: Vec<Nonce>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<T> {
    #[serde(rename = "landfall")]
    _kind: String,
    #[serde(rename = "version")]
    _version: u32,
    #[serde(rename = "sha256")]
    _sha256: Digest,
    nonce: Nonce,
    nonces: Vec<Nonce>,
    body: T,
}

#[derive(Deserialize)]
struct Peek {
    body: PeekBody,
}

#[derive(Deserialize)]
struct PeekBody {
    min_reader: Option<u32>,
}

/// Encodes a document. `nonces` are newest first; the first is this write's; those beyond [`NONCES_KEPT`] are left out.
///
/// # Errors
/// `Limit` when the document is over [`DOCUMENT_MAX`], `Internal` when the value can't be written as JSON.
pub(crate) fn encode<T: Document>(value: &T, nonces: &[Nonce]) -> Result<Encoded> {
    let failed = |error: serde_json::Error| Error::internal(format!("a {} can't be written as JSON", T::KIND)).source(error);
    let (nonce, earlier) = nonces.split_first().ok_or_else(|| Error::internal("a document is written without a nonce"))?;
    let earlier = &earlier[..earlier.len().min(NONCES_KEPT - 1)];
    let mut rest = format!("\"nonce\":\"{nonce}\",\"nonces\":").into_bytes();
    serde_json::to_writer(&mut rest, earlier).map_err(failed)?;
    rest.extend_from_slice(b",\"body\":");
    serde_json::to_writer(&mut rest, value).map_err(failed)?;
    rest.extend_from_slice(b"}\n");
    let sum = digest(T::KIND, T::VERSION, &rest);
    let mut bytes = format!("{{\"landfall\":\"{}\",\"version\":{},\"sha256\":\"{sum}\",", T::KIND, T::VERSION).into_bytes();
    bytes.append(&mut rest);
    if bytes.len() > DOCUMENT_MAX {
        return Err(
            Error::limit(format!("a {} of {} bytes is over the limit of {DOCUMENT_MAX}", T::KIND, bytes.len())).code("document_too_large")
        );
    }
    Ok(Encoded { digest: crate::id::sha256(&bytes), bytes: bytes.into() })
}

/// Decodes a document that was read as the object `what`.
///
/// # Errors
/// `Damaged` when a byte differs from what was written or a rule is broken; `TooNew` when a newer version wrote it.
pub(crate) fn decode<T: Document>(what: &str, bytes: &[u8]) -> Result<Decoded<T>> {
    let damaged = |why: &str| {
        Error::damaged(format!("{what} is damaged: {why}"))
            .code(T::DAMAGED)
            .hint("restore this object from a copy of the store (a versioned bucket keeps earlier versions)")
    };
    if bytes.len() > DOCUMENT_MAX {
        return Err(damaged(&format!("it has {} bytes, over the limit of {DOCUMENT_MAX}", bytes.len())));
    }
    let header = header(bytes).ok_or_else(|| damaged("it doesn't begin with a document header"))?;
    if digest(header.kind, header.version, header.rest) != header.sha256 {
        return Err(damaged("its bytes don't match their digest"));
    }
    if header.kind != T::KIND {
        return Err(damaged(&format!("it is a {}, not a {}", header.kind, T::KIND)));
    }
    if header.version > T::VERSION {
        return Err(Error::too_new(format!("{what} has format version {}; this program reads up to {}", header.version, T::VERSION))
            .hint("upgrade landfall on this machine"));
    }
    let envelope: Envelope<T> = match serde_json::from_slice(bytes) {
        Ok(envelope) => envelope,
        Err(error) => {
            // The digest is right, so a field that isn't known was written on purpose, by a program that asks for a newer reader.
            return match serde_json::from_slice::<Peek>(bytes) {
                Ok(Peek { body: PeekBody { min_reader: Some(reader) } }) if reader > T::VERSION => {
                    Err(Error::too_new(format!("{what} needs a reader of version {reader}; this program is one of version {}", T::VERSION))
                        .hint("upgrade landfall on this machine"))
                }
                _ => Err(damaged("its JSON isn't of the expected form").source(error)),
            };
        }
    };
    if envelope.nonces.len() >= NONCES_KEPT {
        return Err(damaged("it has too many nonces"));
    }
    match envelope.body.check() {
        Err(error) if error.kind() == crate::ErrorKind::TooNew => return Err(error),
        result => result.map_err(|error| damaged("its content breaks a rule").source(error))?,
    }
    let mut nonces = vec![envelope.nonce];
    nonces.extend(envelope.nonces);
    Ok(Decoded { value: envelope.body, nonces })
}

struct Header<'a> {
    kind: &'a str,
    version: u32,
    sha256: Digest,
    rest: &'a [u8],
}

fn header(bytes: &[u8]) -> Option<Header<'_>> {
    let rest = bytes.strip_prefix(b"{\"landfall\":\"")?;
    let (kind, rest) = split_at(rest, |b| !(b.is_ascii_lowercase() || b == b'-'))?;
    let rest = rest.strip_prefix(b"\",\"version\":")?;
    let (version, rest) = split_at(rest, |b| !b.is_ascii_digit())?;
    let rest = rest.strip_prefix(b",\"sha256\":\"")?;
    let (sha256, rest) = rest.split_at_checked(64)?;
    let rest = rest.strip_prefix(b"\",")?;
    // A leading zero would be a second spelling of the same version.
    let version = std::str::from_utf8(version).ok().filter(|text| !text.starts_with('0'))?.parse().ok()?;
    Some(Header { kind: std::str::from_utf8(kind).ok()?, version, sha256: std::str::from_utf8(sha256).ok()?.parse().ok()?, rest })
}

fn split_at(bytes: &[u8], end: impl Fn(u8) -> bool) -> Option<(&[u8], &[u8])> {
    bytes.split_at_checked(bytes.iter().position(|b| end(*b))?)
}

fn digest(kind: &str, version: u32, rest: &[u8]) -> Digest {
    let mut hash = Sha256::new();
    hash.update(format!("landfall:document:{kind}:{version}\n").as_bytes());
    hash.update(rest);
    Digest::from_bytes(hash.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    #[serde(deny_unknown_fields)]
    struct Note {
        text: String,
    }

    impl Document for Note {
        const KIND: &'static str = "note";
        const VERSION: u32 = 2;
        const DAMAGED: &'static str = "note_damaged";
    }

    fn nonces(count: u8) -> Vec<Nonce> {
        (0..count).map(|at| Nonce::from_bytes([at; 16])).collect()
    }

    fn note(text: &str) -> Note {
        Note { text: text.to_owned() }
    }

    #[test]
    fn a_document_has_this_form() {
        let encoded = encode(&note("hi"), &nonces(2)).unwrap();
        let text = std::str::from_utf8(&encoded.bytes).unwrap();
        let rest = format!("\"nonce\":\"{}\",\"nonces\":[\"{}\"],\"body\":{{\"text\":\"hi\"}}}}\n", "00".repeat(16), "01".repeat(16));
        let sum = crate::id::sha256(format!("landfall:document:note:2\n{rest}").as_bytes());
        assert_eq!(text, format!("{{\"landfall\":\"note\",\"version\":2,\"sha256\":\"{sum}\",{rest}"));
        assert_eq!(encoded.digest, crate::id::sha256(&encoded.bytes));
    }

    #[test]
    fn every_changed_lost_or_added_byte_is_noticed() {
        let encoded = encode(&note("hi there"), &nonces(3)).unwrap();
        assert_eq!(decode::<Note>("the note", &encoded.bytes).unwrap().value, note("hi there"));
        for at in 0..encoded.bytes.len() {
            for mask in [1, 0x20, 0x80] {
                let mut bytes = encoded.bytes.to_vec();
                bytes[at] ^= mask;
                let error = decode::<Note>("the note", &bytes).unwrap_err();
                assert_eq!(error.stable_code(), "note_damaged", "byte {at}, mask {mask}: {error:?}");
            }
            assert!(decode::<Note>("the note", &encoded.bytes[..at]).is_err());
        }
        assert!(decode::<Note>("the note", &[&encoded.bytes[..], b"\n"].concat()).is_err());
    }

    #[test]
    fn only_the_last_nonces_are_kept() {
        let encoded = encode(&note(""), &nonces(40)).unwrap();
        assert_eq!(decode::<Note>("n", &encoded.bytes).unwrap().nonces, nonces(16));
        assert!(encoded.bytes.len() < HEADER_MAX);
    }

    #[test]
    fn a_newer_format_is_named_as_such_and_another_kind_is_damage() {
        #[derive(Serialize, Deserialize, Debug)]
        struct Newer {
            text: String,
            more: u32,
        }
        impl Document for Newer {
            const KIND: &'static str = "note";
            const VERSION: u32 = 3;
            const DAMAGED: &'static str = "note_damaged";
        }
        let newer = encode(&Newer { text: String::new(), more: 1 }, &nonces(1)).unwrap();
        assert_eq!(decode::<Note>("n", &newer.bytes).unwrap_err().kind(), crate::ErrorKind::TooNew);

        #[derive(Serialize, Deserialize, Debug)]
        struct Other;
        impl Document for Other {
            const KIND: &'static str = "other";
            const VERSION: u32 = 1;
            const DAMAGED: &'static str = "other_damaged";
        }
        let other = encode(&Other, &nonces(1)).unwrap();
        assert_eq!(decode::<Note>("n", &other.bytes).unwrap_err().stable_code(), "note_damaged");
    }

    #[test]
    fn a_document_over_the_limit_is_neither_written_nor_read() {
        assert_eq!(encode(&note(&"x".repeat(DOCUMENT_MAX)), &nonces(1)).unwrap_err().kind(), crate::ErrorKind::Limit);
        assert!(decode::<Note>("n", &vec![b' '; DOCUMENT_MAX + 1]).is_err());
    }
}
