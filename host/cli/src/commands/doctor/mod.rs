//! `landfall doctor`: is the store fit for use?

use serde_json::json;

mod children;
mod matrix;

use crate::args::{Doctor, Global};
use crate::environment::Environment;
use crate::exit::Done;
use crate::{output, setup};

pub(crate) async fn run(global: &Global, environment: Environment, args: Doctor) -> anyhow::Result<Done> {
    if args.restart_matrix {
        return matrix::run(global, environment, args).await;
    }
    let url = setup::store_url(global, &environment)?;
    let store = setup::store(global, &environment, true).await?;
    let report = store.probe().await?;
    let fit = report.abilities.allows_replicas();
    if global.json {
        output::json(&json!({
            "store": url,
            "checks_uploads": report.abilities.checks_uploads,
            "exclusive_create": report.abilities.exclusive_create,
            "conditional_update": report.abilities.conditional_update,
            "many_replicas": fit,
        }));
    } else {
        output::line(&format!("store {url}"));
        for check in &report.checks {
            let note = check.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
            let answer = match check.holds {
                Some(true) => "yes",
                Some(false) => "NO ",
                None => "?  ",
            };
            output::line(&format!("  {answer}  {}{note}", check.what));
        }
        output::line(if fit { "fit for many replicas" } else { "fit for one replica only" });
    }
    Ok(if fit { Done::Ok } else { Done::Failed })
}
