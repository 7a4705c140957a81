//! `landfall doctor`: is the store fit for use?

use serde_json::json;

use crate::args::Global;
use crate::environment::Environment;
use crate::exit::Done;
use crate::{output, setup};

pub(crate) async fn run(global: &Global, environment: Environment) -> anyhow::Result<Done> {
    let url = setup::store_url(global, &environment);
    let store = setup::store(global, &environment, true).await?;
    let abilities = store.probe().await?;
    let checks = [
        ("uploads with a wrong checksum are refused", abilities.checks_uploads, "every pack is read back after its upload"),
        ("an existing object isn't created again", abilities.exclusive_create, "only one replica may use this store"),
        ("a stale conditional update is refused", abilities.conditional_update, "only one replica may use this store"),
    ];
    let fit = abilities.exclusive_create && abilities.conditional_update;
    if global.json {
        output::json(&json!({
            "store": url,
            "checks_uploads": abilities.checks_uploads,
            "exclusive_create": abilities.exclusive_create,
            "conditional_update": abilities.conditional_update,
            "many_replicas": fit,
        }));
    } else {
        output::line(&format!("store {url}"));
        for (what, holds, otherwise) in checks {
            output::line(&if holds { format!("  yes  {what}") } else { format!("  NO   {what}: {otherwise}") });
        }
        output::line(if fit { "fit for many replicas" } else { "fit for one replica only" });
    }
    Ok(if fit { Done::Ok } else { Done::Failed })
}
