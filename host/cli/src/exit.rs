//! From errors to exit codes and to the lines that people read.

use std::process::ExitCode;

use landfall::ErrorKind;

/// How a command ended, when it isn't an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Done {
    /// It did what was asked.
    Ok,
    /// The run failed, or the check found damage.
    Failed,
    /// What was asked about can't be meant; it was said.
    Usage,
    /// What was asked about is denied.
    Denied,
}

/// Exit codes: 0 done, 1 the run failed, 2 usage or config, 3 denied, 4 conflict or fenced, 5 store or network.
pub(crate) fn code_of(error: &landfall::Error) -> u8 {
    if error.stable_code() == "store_missing" {
        return 5;
    }
    match error.kind() {
        ErrorKind::Usage | ErrorKind::Config | ErrorKind::NotFound | ErrorKind::Limit | ErrorKind::Component => 2,
        ErrorKind::Denied => 3,
        ErrorKind::Conflict => 4,
        ErrorKind::Store | ErrorKind::Remote | ErrorKind::Damaged | ErrorKind::TooNew => 5,
        _ => 1,
    }
}

/// Reports an error on stderr, or as the JSON document on stdout, and returns its exit code.
pub(crate) fn report(error: &anyhow::Error, json: bool) -> ExitCode {
    let (code, stable, hint) = match error.downcast_ref::<landfall::Error>() {
        Some(error) => (code_of(error), error.stable_code(), error.next_step().map(str::to_owned)),
        None => (2, "usage", None),
    };
    let chain = error.chain().map(ToString::to_string).collect::<Vec<_>>().join(": ");
    if json {
        crate::output::json(&serde_json::json!({ "error": { "code": stable, "message": chain, "hint": hint } }));
    } else {
        crate::output::note(&format!("error: {chain}"));
        if let Some(hint) = hint {
            crate::output::note(&format!("  hint: {hint}"));
        }
    }
    ExitCode::from(code)
}
