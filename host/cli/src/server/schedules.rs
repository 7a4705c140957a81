//! Schedules over HTTP: the same rules as on the command line, within the token's agents.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use landfall::config::Scope;
use landfall::id::ScheduleId;
use landfall::schedule::change::Expected;
use landfall::schedule::plan::Source;
use landfall::schedule::view::{View, Written, history_document};
use landfall::{Error, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use super::App;
use super::access::Access;
use super::answer::Refused;

type Shared = State<Arc<App>>;
type Body = std::result::Result<Bytes, BytesRejection>;

pub(super) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/v1/schedules", get(list))
        .route("/v1/schedules/{id}", get(show).put(put).delete(remove))
        .route("/v1/schedules/{id}/trigger", post(trigger))
        .route("/v1/schedules/{id}/pause", post(pause))
        .route("/v1/schedules/{id}/resume", post(resume))
        .route("/v1/schedules/{id}/history", get(history))
        .route("/metrics", get(metrics))
}

fn document(view: &View) -> Result<Value> {
    serde_json::to_value(view.shown()).map_err(|error| Error::internal("a schedule can't be written as JSON").source(error))
}

/// Finds a schedule of the token's agents; others are as if they weren't there.
async fn find(app: &App, access: &Access, id: &str) -> Result<(ScheduleId, View)> {
    let id: ScheduleId = id.parse()?;
    let view = app.host.schedules().get(&id).await?;
    access.need_agent(&view.plan.spec.agent)?;
    Ok((id, view))
}

async fn list(State(app): Shared, access: Access) -> Result<Response, Refused> {
    access.need(Scope::Read)?;
    let mut all = Vec::new();
    for (id, view) in app.host.schedules().list(None).await? {
        match view {
            Ok(view) if access.need_agent(&view.plan.spec.agent).is_ok() => all.push(document(&view)?),
            Ok(_) => {}
            // Whose it is can't be told, so only a token for all agents learns of it.
            Err(error) if access.agents().is_none() => {
                all.push(json!({ "id": id, "error": { "code": error.stable_code(), "message": error.message() } }));
            }
            Err(_) => {}
        }
    }
    Ok(Json(json!({ "schedules": all })).into_response())
}

async fn show(State(app): Shared, access: Access, Path(id): Path<String>) -> Result<Response, Refused> {
    access.need(Scope::Read)?;
    let (_, view) = find(&app, &access, &id).await?;
    Ok(Json(document(&view)?).into_response())
}

async fn put(State(app): Shared, access: Access, Path(id): Path<String>, headers: HeaderMap, body: Body) -> Result<Response, Refused> {
    access.need(Scope::Run)?;
    let id: ScheduleId = id.parse()?;
    let written: Written = json_body(&headers, body)?;
    let revision = written.revision;
    let spec = written.into_spec()?;
    access.need_agent(&spec.agent)?;
    let old = match app.host.schedules().get(&id).await {
        Ok(old) => {
            access.need_agent(&old.plan.spec.agent)?;
            Some(old)
        }
        Err(error) if error.stable_code() == "schedule_missing" => None,
        Err(error) => return Err(error.into()),
    };
    // A change names the revision that it was made to; without one only a new schedule is made.
    let expected = revision.map_or(Expected::New, Expected::Revision);
    let view = app.host.schedules().put(&id, spec, Source::Operator, expected).await?;
    let status = if old.is_none() { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(document(&view)?)).into_response())
}

async fn remove(State(app): Shared, access: Access, Path(id): Path<String>) -> Result<Response, Refused> {
    access.need(Scope::Run)?;
    let (id, view) = find(&app, &access, &id).await?;
    app.host.schedules().remove(&id, Source::Operator, Expected::Revision(view.plan.generation)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn pause(State(app): Shared, access: Access, Path(id): Path<String>) -> Result<Response, Refused> {
    set_paused(&app, &access, &id, true).await
}

async fn resume(State(app): Shared, access: Access, Path(id): Path<String>) -> Result<Response, Refused> {
    set_paused(&app, &access, &id, false).await
}

async fn set_paused(app: &App, access: &Access, id: &str, paused: bool) -> Result<Response, Refused> {
    access.need(Scope::Run)?;
    let (id, _) = find(app, access, id).await?;
    let view = app.host.schedules().set_paused(&id, paused).await?;
    Ok(Json(document(&view)?).into_response())
}

async fn history(State(app): Shared, access: Access, Path(id): Path<String>) -> Result<Response, Refused> {
    access.need(Scope::Read)?;
    let (_, view) = find(&app, &access, &id).await?;
    Ok(Json(history_document(&view, usize::MAX)).into_response())
}

/// What this replica's poller did, in the text format of Prometheus.
async fn metrics(State(app): Shared, access: Access) -> Result<Response, Refused> {
    access.need(Scope::Read)?;
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4")], app.poller.metrics().text()).into_response())
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Trigger {
    payload: Option<String>,
}

async fn trigger(State(app): Shared, access: Access, Path(id): Path<String>, headers: HeaderMap, body: Body) -> Result<Response, Refused> {
    access.need(Scope::Run)?;
    let (id, _) = find(&app, &access, &id).await?;
    if !app.taking.load(Ordering::SeqCst) {
        let error = Error::conflict("this replica is being stopped").code("draining").hint("repeat: another replica takes it");
        return Err(Refused::unavailable(error));
    }
    let Trigger { payload } = json_body(&headers, body)?;
    let key = match headers.get("idempotency-key") {
        None => None,
        Some(key) => Some(key.to_str().map_err(|_| Error::usage("the Idempotency-Key isn't printable ASCII"))?),
    };
    let triggered = app.host.schedules().trigger(&id, payload.as_deref(), key).await?;
    let document = json!({
        "schedule": id, "run": triggered.run, "session": triggered.session.to_string(), "waits": triggered.waits, "repeated": triggered.repeated,
    });
    Ok((StatusCode::ACCEPTED, [(LOCATION, format!("/v1/runs/{}", triggered.run))], Json(document)).into_response())
}

/// Reads a JSON body; none is an empty document. No other media type is taken: a form of some web page can't have this one without asking first.
fn json_body<T: serde::de::DeserializeOwned>(headers: &HeaderMap, body: Body) -> Result<T, Refused> {
    let body = body.map_err(|error| Refused::with(error.status(), Error::usage(error.body_text()).code("body")))?;
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_json = kind.is_some_and(|kind| kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json")));
    if !is_json {
        return Err(Refused::with(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Error::usage("the body has to be application/json").code("media_type"),
        ));
    }
    let body: &[u8] = if body.is_empty() { b"{}" } else { &body };
    Ok(serde_json::from_slice(body).map_err(|error| Error::usage(error.to_string()).code("body"))?)
}
