//! The HTTP server: routes, who may use them, and how it ends. What a request means is the library's (`landfall::trigger::http`).

mod access;
mod answer;
mod routes;
mod schedules;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use landfall::config::Server;
use landfall::host::Host;
use landfall::schedule::poller::Poller;
use landfall::worker::QueueWorker;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// How long open connections may take to end after the last run has.
const CLOSING: Duration = Duration::from_secs(5);

/// What every request is served with.
pub(crate) struct App {
    pub(crate) host: Host,
    pub(crate) worker: QueueWorker,
    pub(crate) poller: Arc<Poller>,
    pub(crate) server: Server,
    /// Whether new turns are taken: false from the first signal on.
    pub(crate) taking: AtomicBool,
    /// Changes when the server ends: whoever waits for a run is answered at once.
    pub(crate) ending: watch::Sender<bool>,
}

/// A listening server.
pub(crate) struct Listening {
    app: Arc<App>,
    address: SocketAddr,
    task: tokio::task::JoinHandle<std::io::Result<()>>,
}

/// Refuses to listen where others can reach it without a token.
pub(crate) fn check_exposure(server: &Server) -> landfall::Result<()> {
    if server.listen.ip().is_loopback() || !server.tokens.is_empty() {
        return Ok(());
    }
    Err(landfall::Error::config(format!("{} can be reached from other machines, and no token is configured", server.listen))
        .code("token_needed")
        .hint("`landfall token new` makes one and prints the section [server.tokens.NAME]; or listen on 127.0.0.1"))
}

impl Listening {
    /// Serves until [`Listening::end`].
    pub(crate) fn start(
        listener: TcpListener,
        host: Host,
        worker: QueueWorker,
        poller: Arc<Poller>,
        server: Server,
    ) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let app = Arc::new(App { host, worker, poller, server, taking: AtomicBool::new(true), ending: watch::Sender::new(false) });
        let mut ending = app.ending.subscribe();
        let router = routes::router(Arc::clone(&app));
        let task = tokio::spawn(async move {
            let ended = async move {
                let _ = ending.wait_for(|ending| *ending).await;
            };
            axum::serve(listener, router).with_graceful_shutdown(ended).await
        });
        Ok(Self { app, address, task })
    }

    /// Returns where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no new turns from now on; everything else is answered as before.
    pub(crate) fn drain(&self) {
        self.app.taking.store(false, Ordering::SeqCst);
    }

    /// Answers what waits, and ends.
    pub(crate) async fn end(self) {
        self.app.ending.send_replace(true);
        let abort = self.task.abort_handle();
        tokio::select! {
            _ = self.task => {}
            () = landfall::clock::Clock::sleep(&landfall::clock::SystemClock, CLOSING) => abort.abort(),
        }
    }
}
