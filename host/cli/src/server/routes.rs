//! What can be asked. Each handler reads the request, asks the library, and answers with its document.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use landfall::config::Scope;
use landfall::id::{AgentName, RunId, SessionRef};
use landfall::session::RunState;
use landfall::session::view::{RunView, SessionView};
use landfall::trigger::http::{BODY_MAX, TurnBody, run_document};
use landfall::{Error, Result};
use serde::Deserialize;
use serde_json::json;

use super::App;
use super::access::Access;
use super::answer::Refused;

/// Longest time that a request may wait for its run.
const WAIT_MAX: Duration = Duration::from_secs(600);
/// Most runs that one request lists.
const RUNS_MAX: usize = 1000;

type Shared = State<Arc<App>>;

pub(super) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/agents/{agent}/sessions/{session}/turns", post(start_turn))
        .route("/v1/agents/{agent}/sessions/{session}/runs", get(list_runs))
        .route("/v1/agents/{agent}/sessions/{session}", get(show_session))
        .route("/v1/agents/{agent}/sessions", get(list_agent_sessions))
        .route("/v1/sessions", get(list_sessions))
        .route("/v1/runs/{run}", get(show_run))
        .route("/v1/runs/{run}/cancel", post(cancel_run))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .merge(super::schedules::router())
        .fallback(async || Refused::from(Error::not_found("there is no such path").code("path_missing")))
        .method_not_allowed_fallback(async || {
            Refused::with(StatusCode::METHOD_NOT_ALLOWED, Error::usage("the path is there, but not with this method").code("method"))
        })
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .with_state(app)
}

/// How long the answer may wait for the run: `?wait=SECONDS`; none or 0 answers at once.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Waiting {
    #[serde(default)]
    wait: u64,
}

impl Waiting {
    fn span(query: std::result::Result<Query<Self>, QueryRejection>) -> Result<Duration> {
        let Query(Self { wait }) = query.map_err(|error| Error::usage(error.body_text()))?;
        Ok(Duration::from_secs(wait).min(WAIT_MAX))
    }
}

async fn start_turn(
    State(app): Shared,
    access: Access,
    Path((agent, session)): Path<(String, String)>,
    query: std::result::Result<Query<Waiting>, QueryRejection>,
    headers: HeaderMap,
    body: std::result::Result<Bytes, BytesRejection>,
) -> Result<Response, Refused> {
    access.need(Scope::Run)?;
    let session = session_ref(&access, &agent, &session)?;
    let wait = Waiting::span(query)?;
    if !app.taking.load(Ordering::SeqCst) {
        let error = Error::conflict("this replica is being stopped").code("draining").hint("repeat: another replica takes it");
        return Err(Refused::unavailable(error));
    }
    // JSON only: a form of some web page can't have this type without asking first.
    let is_json = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .is_some_and(|kind| kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json")));
    if !is_json {
        return Err(Refused::with(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Error::usage("the body has to be application/json").code("media_type"),
        ));
    }
    let body = body.map_err(|error| Refused::with(error.status(), Error::usage(error.body_text()).code("body")))?;
    let body: TurnBody = if body.is_empty() {
        TurnBody::default()
    } else {
        serde_json::from_slice(&body).map_err(|error| Error::usage(error.to_string()))?
    };
    let key = match headers.get("idempotency-key") {
        None => None,
        Some(key) => Some(key.to_str().map_err(|_| Error::usage("the Idempotency-Key isn't printable ASCII"))?.to_owned()),
    };
    let accepted = app.worker.submit(body.into_request(session, key)?).await?;
    if let Some(record) = accepted.ended {
        return Ok(Json(json!(RunView::of(&record))).into_response());
    }
    answer(&app, &accepted.session, accepted.run, wait).await
}

/// Waits for a run, and answers 200 when it has ended, else 202 with where to look.
async fn answer(app: &App, session: &SessionRef, run: RunId, wait: Duration) -> Result<Response, Refused> {
    let state = if wait.is_zero() { None } else { Some(waited(app, session, run, wait).await?) };
    Ok(match state {
        Some(state @ RunState::Ended(_)) => Json(run_document(session, run, &state)).into_response(),
        state => {
            let document = match state {
                Some(state) => run_document(session, run, &state),
                None => json!({ "run": run, "session": session.to_string(), "status": "queued" }),
            };
            (StatusCode::ACCEPTED, [(LOCATION, format!("/v1/runs/{run}"))], Json(document)).into_response()
        }
    })
}

async fn waited(app: &App, session: &SessionRef, run: RunId, wait: Duration) -> Result<RunState> {
    let mut ending = app.ending.subscribe();
    let ended = async {
        let _ = ending.wait_for(|ending| *ending).await;
    };
    tokio::select! {
        state = app.worker.wait(session, run, wait) => state,
        () = ended => app.host.run_state(session, run).await,
    }
}

async fn show_run(
    State(app): Shared,
    access: Access,
    Path(run): Path<String>,
    query: std::result::Result<Query<Waiting>, QueryRejection>,
) -> Result<Response, Refused> {
    access.need(Scope::Read)?;
    let (wait, run) = (Waiting::span(query)?, run.parse()?);
    let session = app.host.session_of_run(run, access.agents().as_deref()).await?;
    let state = if wait.is_zero() { app.host.run_state(&session, run).await? } else { waited(&app, &session, run, wait).await? };
    Ok(Json(run_document(&session, run, &state)).into_response())
}

async fn cancel_run(State(app): Shared, access: Access, Path(run): Path<String>) -> Result<Response, Refused> {
    access.need(Scope::Run)?;
    let run = run.parse()?;
    let session = app.host.session_of_run(run, access.agents().as_deref()).await?;
    app.worker.cancel(&session, run).await?;
    Ok((StatusCode::ACCEPTED, Json(json!({ "run": run, "session": session.to_string(), "cancelling": true }))).into_response())
}

async fn list_sessions(State(app): Shared, access: Access) -> Result<Response, Refused> {
    access.need(Scope::Read)?;
    let heads = app.host.sessions(None).await?;
    let sessions: Vec<_> =
        heads.iter().filter(|head| access.need_agent(&head.session.agent).is_ok()).map(|head| json!(SessionView::of(head))).collect();
    Ok(Json(json!({ "sessions": sessions })).into_response())
}

async fn list_agent_sessions(State(app): Shared, access: Access, Path(agent): Path<String>) -> Result<Response, Refused> {
    access.need(Scope::Read)?;
    let agent: AgentName = agent.parse()?;
    access.need_agent(&agent)?;
    let sessions: Vec<_> = app.host.sessions(Some(&agent)).await?.iter().map(|head| json!(SessionView::of(head))).collect();
    Ok(Json(json!({ "sessions": sessions })).into_response())
}

async fn show_session(State(app): Shared, access: Access, Path((agent, session)): Path<(String, String)>) -> Result<Response, Refused> {
    access.need(Scope::Read)?;
    let session = session_ref(&access, &agent, &session)?;
    Ok(Json(json!(SessionView::of(&app.host.session(&session).await?))).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Limit {
    limit: Option<usize>,
}

async fn list_runs(
    State(app): Shared,
    access: Access,
    Path((agent, session)): Path<(String, String)>,
    query: std::result::Result<Query<Limit>, QueryRejection>,
) -> Result<Response, Refused> {
    access.need(Scope::Read)?;
    let session = session_ref(&access, &agent, &session)?;
    let Query(Limit { limit }) = query.map_err(|error| Error::usage(error.body_text()))?;
    let runs = app.host.runs(&session, limit.unwrap_or(50).min(RUNS_MAX)).await?;
    let turns: Vec<_> = runs.iter().map(|run| json!(RunView::of(run))).collect();
    Ok(Json(json!({ "session": session.to_string(), "turns": turns })).into_response())
}

/// Whether the process serves at all.
async fn healthz() -> Response {
    Json(json!({ "status": "ok" })).into_response()
}

/// Whether it takes turns: not while it is being stopped, and not while others may take it for dead.
async fn readyz(State(app): Shared) -> Response {
    let why = if !app.taking.load(Ordering::SeqCst) {
        Some("stopping")
    } else if !app.host.is_known() {
        Some("no sign of life could be written to the store for a whole lease")
    } else {
        None
    };
    match why {
        None => Json(json!({ "status": "ready", "running": app.worker.running() })).into_response(),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "status": "not ready", "why": why }))).into_response(),
    }
}

fn session_ref(access: &Access, agent: &str, session: &str) -> Result<SessionRef> {
    let session = SessionRef { agent: agent.parse()?, session: session.parse()? };
    access.need_agent(&session.agent)?;
    Ok(session)
}
