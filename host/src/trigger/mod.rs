//! What starts a turn. The command line, HTTP and schedules all become one [`TurnRequest`], and what goes on comes back as [`RunEvent`]s: both are
//! the turn's own, and are here for those who make and watch them.

pub mod http;

pub use crate::session::{Origin, Trigger};
pub use crate::turn::event::{LogStream, NoWatch, RunEvent, SharedWatch, Step, Watch};
pub use crate::turn::request::{Attachment, Busy, PinChoice, TurnRequest};
