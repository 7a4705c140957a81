//! Why a guest's call didn't give a response. Not errors of the host: the run failed, and its record says how.

use std::fmt;
use std::time::Duration;

use wasmtime::{Trap, WasmBacktrace};

use super::limits::MemoryUse;
use crate::cancel::CancelReason;
use crate::capability::bindings::exports::landfall::agent::turn as wit;
use crate::capability::refusal::LimitReached;
use crate::error::Error;
use crate::policy::grants::Denial;

/// Why a guest's call failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GuestFailure {
    /// It trapped.
    Trap {
        /// How.
        kind: TrapKind,
        /// What the machine says of it, in one line.
        message: String,
        /// The calls that led to it, innermost first; at most 20.
        backtrace: Vec<Frame>,
        /// The end of what it wrote to stderr; a panic's message is there.
        stderr: String,
    },
    /// It ran longer than it may.
    OutOfTime {
        /// The limit.
        limit: Duration,
    },
    /// It failed after it was refused more memory.
    OutOfMemory {
        /// The limit in bytes.
        limit: u64,
        /// What all its memories would have had, in bytes.
        wanted: u64,
    },
    /// It ended by itself with another exit code than 0.
    ExitCode {
        /// The code.
        code: i32,
        /// The end of what it wrote to stderr.
        stderr: String,
    },
    /// Its output is larger than it may be.
    OutputTooLarge {
        /// The limit in bytes.
        limit: u64,
        /// Its size in bytes, or what it had reached when it was stopped.
        size: u64,
    },
    /// It was stopped from outside.
    Cancelled(CancelReason),
    /// It says: the request is not one for this agent.
    InvalidRequest(String),
    /// It says: a capability refused.
    Denied(Box<Denial>),
    /// It says: a limit was reached.
    Limit(LimitReached),
    /// It says: something outside can't be reached now.
    Unavailable(String),
    /// It says: something else.
    Other(String),
}

/// How a guest trapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum TrapKind {
    /// It came to a place that it declared unreachable: how an abort ends, and so a panic.
    Unreachable,
    /// Its calls are nested too deep.
    StackOverflow,
    /// It read or wrote outside its memory.
    OutOfBounds,
    /// Division by zero, an overflow, or a float that no integer holds.
    Arithmetic,
    /// It called through a table what isn't there, or with another signature.
    IndirectCall,
    /// A call of the host that breaks the rules of the component model or is over a limit of the host: too many handles, too many bytes.
    HostCall,
    /// Something else.
    Other,
}

impl TrapKind {
    /// Returns its stable name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::StackOverflow => "stack_overflow",
            Self::OutOfBounds => "out_of_bounds",
            Self::Arithmetic => "arithmetic",
            Self::IndirectCall => "indirect_call",
            Self::HostCall => "host_call",
            Self::Other => "other",
        }
    }
}

/// A call in a guest's backtrace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The function's name in the language it was written in, or its number where the component has no names.
    pub function: String,
    /// The file and line, where the component has debug information.
    pub source: Option<String>,
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some(source) => write!(f, "{} at {source}", self.function),
            None => f.write_str(&self.function),
        }
    }
}

impl GuestFailure {
    /// Returns a stable code for records and for `--json`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Trap { .. } => "trap",
            Self::OutOfTime { .. } => "out_of_time",
            Self::OutOfMemory { .. } => "out_of_memory",
            Self::ExitCode { .. } => "exit_code",
            Self::OutputTooLarge { .. } => "output_too_large",
            Self::Cancelled(_) => "cancelled",
            Self::InvalidRequest(_) => "invalid_request",
            Self::Denied(_) => "denied",
            Self::Limit(_) => "limit",
            Self::Unavailable(_) => "unavailable",
            Self::Other(_) => "failed",
        }
    }

    /// Returns what the reader does next, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::OutOfTime { .. } => "raise `time` in the agent's `limits`, or give it less to do in one turn".to_owned(),
            Self::OutOfMemory { .. } => "raise `memory` in the agent's `limits`".to_owned(),
            Self::OutputTooLarge { .. } => {
                "raise `output` in the agent's `limits`, or write the result to a file of the workspace".to_owned()
            }
            Self::Limit(limit) => format!("raise `{}` in the agent's `limits`", limit.name),
            Self::Denied(denial) => format!("this line of the configuration allows it: {}", denial.config_line.as_deref()?),
            Self::Trap { kind: TrapKind::StackOverflow, .. } => "look for a recursion without an end".to_owned(),
            _ => return None,
        })
    }
}

impl fmt::Display for GuestFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trap { message, backtrace, stderr, .. } => {
                // A panic says more than the trap that it ends in.
                match stderr.lines().map(str::trim).rev().find(|line| !line.is_empty() && !line.starts_with("note: ")) {
                    Some(last) => write!(f, "the component trapped: {message}; the last it wrote to stderr: {last}")?,
                    None => write!(f, "the component trapped: {message}")?,
                }
                match backtrace.first() {
                    Some(frame) => write!(f, " (in {frame})"),
                    None => Ok(()),
                }
            }
            Self::OutOfTime { limit } => write!(f, "the component ran longer than its limit `time` of {limit:?}"),
            Self::OutOfMemory { limit, wanted } => {
                write!(f, "the component needed {wanted} bytes of memory, which is over its limit `memory` of {limit} bytes")
            }
            Self::ExitCode { code, stderr } => match stderr.lines().map(str::trim).rev().find(|line| !line.is_empty()) {
                Some(last) => write!(f, "the component ended with exit code {code}; the last it wrote to stderr: {last}"),
                None => write!(f, "the component ended with exit code {code}"),
            },
            Self::OutputTooLarge { limit, size } => {
                write!(f, "the output has {size} bytes or more, which is over its limit `output` of {limit} bytes")
            }
            Self::Cancelled(CancelReason::Requested) => f.write_str("the run was cancelled"),
            Self::Cancelled(CancelReason::Shutdown) => f.write_str("the host shut down before the run ended"),
            Self::Cancelled(CancelReason::Fenced) => f.write_str("another replica took over the session"),
            Self::InvalidRequest(text) => write!(f, "the agent refused the request: {text}"),
            Self::Denied(denial) => denial.fmt(f),
            Self::Limit(limit) => limit.fmt(f),
            Self::Unavailable(text) => write!(f, "something that the agent needs is unavailable: {text}"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl From<wit::Failure> for GuestFailure {
    fn from(failure: wit::Failure) -> Self {
        match failure {
            wit::Failure::InvalidRequest(text) => Self::InvalidRequest(text),
            wit::Failure::Denied(denial) => Self::Denied(Box::new(denial.into())),
            wit::Failure::Limit(limit) => Self::Limit(limit.into()),
            wit::Failure::Unavailable(text) => Self::Unavailable(text),
            wit::Failure::Other(text) => Self::Other(text),
        }
    }
}

/// A failure of the guest that a host call raises to end it.
#[derive(Debug)]
pub(super) struct Stop(pub(super) GuestFailure);

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Stop {}

/// Most frames of a backtrace that are kept.
const FRAMES: usize = 20;

/// Sorts out how a call ended: by the host's own error, which is returned as such, or by the guest's.
pub(super) fn classify(error: wasmtime::Error, memory: &MemoryUse, limit: u64, stderr: String) -> Result<GuestFailure, Error> {
    let error = match error.downcast::<Stop>() {
        Ok(Stop(failure)) => return Ok(failure),
        Err(error) => error,
    };
    let error = match error.downcast::<Error>() {
        Ok(error) => return Err(error),
        Err(error) => error,
    };
    if let Some(wasmtime_wasi::I32Exit(code)) = error.downcast_ref() {
        return Ok(GuestFailure::ExitCode { code: *code, stderr });
    }
    if let Some(full) = error.downcast_ref::<wasmtime::PoolConcurrencyLimitError>() {
        return Err(Error::limit("no more guests fit in the pool of memories now").code("pool_full").source(full.to_string()));
    }
    let trap = error.downcast_ref::<Trap>().copied();
    // A guest that was refused memory may go on; when it then gives up (or never started), that was why.
    if let Some(wanted) = memory.refused().filter(|_| matches!(trap, None | Some(Trap::UnreachableCodeReached))) {
        return Ok(GuestFailure::OutOfMemory { limit, wanted });
    }
    let backtrace = error.downcast_ref::<WasmBacktrace>().map(frames).unwrap_or_default();
    let message = trap.map_or_else(|| format!("{:#}", WithoutBacktrace(&error)), |trap| trap.to_string());
    let kind = match trap.map_or(TrapKind::HostCall, kind) {
        TrapKind::OutOfBounds if is_recursion(&backtrace) => TrapKind::StackOverflow,
        kind => kind,
    };
    Ok(GuestFailure::Trap { kind, message, backtrace, stderr })
}

/// Prints an error's chain without the context that wasmtime adds: that is the backtrace, over many lines.
struct WithoutBacktrace<'a>(&'a wasmtime::Error);

impl fmt::Display for WithoutBacktrace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = self.0.chain().map(ToString::to_string).filter(|text| !text.starts_with("error while executing at wasm backtrace"));
        f.write_str(&texts.collect::<Vec<_>>().join(": "))
    }
}

fn kind(trap: Trap) -> TrapKind {
    match trap {
        Trap::UnreachableCodeReached => TrapKind::Unreachable,
        Trap::StackOverflow => TrapKind::StackOverflow,
        Trap::MemoryOutOfBounds | Trap::TableOutOfBounds | Trap::HeapMisaligned => TrapKind::OutOfBounds,
        Trap::IntegerOverflow | Trap::IntegerDivisionByZero | Trap::BadConversionToInteger => TrapKind::Arithmetic,
        Trap::IndirectCallToNull | Trap::BadSignature => TrapKind::IndirectCall,
        Trap::CannotEnterComponent => TrapKind::HostCall,
        _ => TrapKind::Other,
    }
}

/// Whether a guest came to the end of the stack that its compiler keeps in memory: then it wrote outside the memory, deep in itself.
fn is_recursion(backtrace: &[Frame]) -> bool {
    let same = backtrace.first().map_or(0, |first| backtrace.iter().filter(|frame| frame.function == first.function).count());
    backtrace.len() == FRAMES && same * 2 >= FRAMES
}

fn frames(backtrace: &WasmBacktrace) -> Vec<Frame> {
    let frame = |frame: &wasmtime::FrameInfo| {
        let symbol = frame.symbols().first();
        let function = match symbol.and_then(wasmtime::FrameSymbol::name).or(frame.func_name()) {
            Some(name) => demangled(name),
            None => format!("function {}", frame.func_index()),
        };
        let source = symbol.and_then(|symbol| Some(format!("{}:{}", symbol.file()?, symbol.line()?)));
        Frame { function, source }
    };
    backtrace.frames().iter().take(FRAMES).map(frame).collect()
}

fn demangled(name: &str) -> String {
    // The alternate form leaves out the hash that Rust adds. Names that aren't Rust's stay as they are.
    format!("{:#}", rustc_demangle::demangle(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_error_inside_a_call_comes_back_as_that_error() {
        let error =
            wasmtime::Error::new(Error::damaged("pack ab").code("pack_damaged")).context("error while executing at wasm backtrace:");
        let error = classify(error, &MemoryUse::default(), 0, String::new()).unwrap_err();
        assert_eq!(error.stable_code(), "pack_damaged");
    }

    #[test]
    fn a_panic_tells_more_than_its_trap() {
        let error = wasmtime::Error::new(Trap::UnreachableCodeReached);
        let stderr = "thread 'main' panicked at src/lib.rs:3:\nno such rule\nnote: run with `RUST_BACKTRACE=1`\n".to_owned();
        let failure = classify(error, &MemoryUse::default(), 0, stderr).unwrap();
        assert_eq!(failure.code(), "trap");
        assert!(failure.to_string().ends_with("the last it wrote to stderr: no such rule"), "{failure}");
    }

    #[test]
    fn names_are_demangled() {
        assert_eq!(demangled("_ZN4core9panicking5panic17h0123456789abcdefE"), "core::panicking::panic");
        assert_eq!(demangled("__main_void"), "__main_void");
    }
}
