//! What a failed request means, and what its reader does next.

use object_store::client::{HttpError, HttpErrorKind};
use rustix::io::Errno;

use crate::error::{Error, ErrorKind};

/// What a failed request says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// No such object.
    Missing,
    /// No such bucket or container.
    BucketMissing,
    /// An exclusive create found something, or the server saw another write at the same time (409): not proof that anything is there.
    Exists,
    /// The object isn't the expected version, or isn't there (412).
    Precondition,
    /// No or wrong credentials, or no permission.
    Denied,
    /// No space or quota left.
    Full,
    /// The folder can't be written at all.
    ReadOnly,
    /// No connection, or no answer in time.
    Unreachable,
    /// Anything else, such as a server error.
    Other,
}

impl Failure {
    /// Whether the request may have taken effect, so that its outcome has to be looked up.
    pub(crate) const fn is_unknown(self) -> bool {
        matches!(self, Self::Exists | Self::Precondition | Self::Unreachable | Self::Other)
    }
}

/// Reads a request's failure.
pub(crate) fn classify(error: &object_store::Error) -> Failure {
    use object_store::Error as E;
    match error {
        E::NotFound { .. } if names_missing_bucket(error) => Failure::BucketMissing,
        E::NotFound { .. } => Failure::Missing,
        E::AlreadyExists { .. } => Failure::Exists,
        // An Update of a missing key is a failed precondition, and of a missing bucket too.
        E::Precondition { .. } if names_missing_bucket(error) => Failure::BucketMissing,
        E::Precondition { .. } | E::NotModified { .. } => Failure::Precondition,
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => Failure::Denied,
        _ => causes(error).find_map(from_cause).unwrap_or(Failure::Other),
    }
}

fn from_cause(cause: &(dyn std::error::Error + 'static)) -> Option<Failure> {
    if let Some(io) = cause.downcast_ref::<std::io::Error>() {
        return match io.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOSPC | Errno::DQUOT) => Some(Failure::Full),
            Some(Errno::ROFS) => Some(Failure::ReadOnly),
            Some(Errno::ACCESS | Errno::PERM) => Some(Failure::Denied),
            Some(Errno::CONNREFUSED | Errno::CONNRESET | Errno::TIMEDOUT | Errno::HOSTUNREACH | Errno::NETUNREACH) => {
                Some(Failure::Unreachable)
            }
            _ if matches!(io.kind(), std::io::ErrorKind::TimedOut | std::io::ErrorKind::ConnectionReset) => Some(Failure::Unreachable),
            _ => None,
        };
    }
    if let Some(http) = cause.downcast_ref::<HttpError>() {
        return matches!(http.kind(), HttpErrorKind::Connect | HttpErrorKind::Timeout | HttpErrorKind::Interrupted)
            .then_some(Failure::Unreachable);
    }
    let text = cause.to_string();
    ["507 ", "QuotaExceeded", "StorageFull", "InsufficientStorage", "No space left"]
        .iter()
        .any(|sign| text.contains(sign))
        .then_some(Failure::Full)
}

/// S3, Google and Azure answer 404 for both; only the body tells a missing bucket from a missing object.
fn names_missing_bucket(error: &object_store::Error) -> bool {
    causes(error).any(|cause| {
        let text = cause.to_string();
        ["NoSuchBucket", "ContainerNotFound", "specified bucket does not exist"].iter().any(|sign| text.contains(sign))
    })
}

/// Says whether a refused upload was refused for its bytes: S3's error codes for a digest that doesn't fit.
pub(crate) fn refuses_bytes(error: &object_store::Error) -> bool {
    let signs = ["BadDigest", "InvalidDigest", "ChecksumMismatch", "ContentSHA256Mismatch", "InvalidChecksum", "checksum"];
    causes(error).any(|cause| {
        let text = cause.to_string();
        signs.iter().any(|sign| text.contains(sign))
    })
}

fn causes(error: &object_store::Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error as &(dyn std::error::Error + 'static)), |cause| cause.source())
}

/// Makes the public error of a failed request: `doing` says what was being done, with the object's name.
pub(crate) fn explain(store: &str, doing: &str, error: object_store::Error) -> Error {
    let failure = classify(&error);
    let (kind, code, what, hint) = match failure {
        Failure::Missing => (ErrorKind::NotFound, "object_missing", "there is no such object", None),
        Failure::BucketMissing => (
            ErrorKind::Store,
            "bucket_missing",
            "the bucket doesn't exist",
            Some("create the bucket, or correct `[store] url`: landfall never makes one"),
        ),
        Failure::Exists | Failure::Precondition => {
            (ErrorKind::Conflict, "store_conflict", "the object was changed by somebody else", Some("look at it again, then repeat"))
        }
        Failure::Denied => (
            ErrorKind::Store,
            "store_denied",
            "access was refused",
            Some("check the store's credentials and permissions: `landfall doctor` tests reading, writing and listing"),
        ),
        Failure::Full => (
            ErrorKind::Store,
            "store_full",
            "the store has no space left",
            Some("free some space or raise the quota, then repeat; `landfall gc --dry-run` shows what could go"),
        ),
        Failure::ReadOnly => (
            ErrorKind::Store,
            "store_read_only",
            "the store can't be written",
            Some("it lies on a read-only file system: mount it writable, or set another `[store] url`"),
        ),
        Failure::Unreachable => (
            ErrorKind::Store,
            "store_unreachable",
            "the store doesn't answer",
            Some("check the network and the store's endpoint, then repeat"),
        ),
        Failure::Other => (ErrorKind::Store, "store_failed", "the store failed", Some("repeat later; `landfall doctor` tests the store")),
    };
    let made = Error::new(kind, format!("{doing} in {store}: {what}")).code(code).source(error);
    match hint {
        Some(hint) => made.hint(hint),
        None => made,
    }
}
