//! `landfall serve`: one of any number of replicas on a store.

use std::sync::Arc;

use landfall::cancel::{CancelReason, Canceller};
use landfall::clock::{Clock as _, SystemClock};
use landfall::component::EngineOptions;
use landfall::config::Server;
use landfall::id::ReplicaName;
use landfall::schedule::poller::{Poller, PollerOptions};
use landfall::session::replica::{LEASE_MAX, LEASE_MIN};
use landfall::worker::{QueueWorker, WorkerOptions};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::args::{Global, Serve};
use crate::environment::Environment;
use crate::exit::Done;
use crate::server::{Listening, check_exposure};
use crate::{output, setup};

/// Shortest time between two listings of the queue.
const POLL_MIN: std::time::Duration = std::time::Duration::from_millis(50);

pub(crate) async fn run(global: &Global, environment: Environment, args: Serve) -> anyhow::Result<Done> {
    let server = settings(&environment.config.server, args)?;
    check_exposure(&server)?;
    let mut signals = Signals::new()?;
    let listener = TcpListener::bind(server.listen).await.map_err(|error| {
        landfall::Error::local(format!("can't listen on {}", server.listen))
            .source(error)
            .hint("another program may have the port: choose one with --listen")
    })?;
    let url = server.url.clone().unwrap_or_else(|| format!("http://{}", listener.local_addr().unwrap_or(server.listen)));
    let name = match &server.name {
        Some(name) => name.clone(),
        None => machine_name()?,
    };
    let declared = environment.config.schedules.clone();
    let guests = u32::try_from(server.concurrency).unwrap_or(u32::MAX);
    let host = setup::builder(global, environment, true)
        .await?
        .replica_name(name.clone())
        .replica_url(url)
        .lease(server.lease)
        .engine(EngineOptions { guests, ..EngineOptions::default() })
        .build()?;
    // Known to the others before the first lease; a store without conditional writes refuses a second replica here.
    host.announce().await?;
    let worker = QueueWorker::start(host.clone(), WorkerOptions { concurrency: server.concurrency, poll: server.poll });
    super::schedule::report(global, &host.schedules().declare(&declared).await?);
    // Schedules are looked at less often than the queue: their ticks wake the poller by themselves.
    let options = PollerOptions { poll: server.poll.saturating_mul(5), ..PollerOptions::default() };
    let poller = Arc::new(Poller::new(host.schedules().clone(), options));
    let (stop_polling, stopped) = Canceller::new();
    let polling = tokio::spawn({
        let poller = Arc::clone(&poller);
        async move { poller.run(&stopped).await }
    });
    let grace = server.grace;
    let listening = Listening::start(listener, host.clone(), worker.clone(), poller, server)?;
    let address = listening.address();
    if global.json {
        output::json(&serde_json::json!({ "listening": address.to_string(), "replica": name, "store": host.store().to_string() }));
    } else if !global.quiet {
        output::note(&format!("replica {name} on {} listens on http://{address}", host.store()));
    }

    signals.next().await;
    listening.drain();
    stop_polling.cancel(CancelReason::Shutdown);
    if !global.quiet {
        output::note(&format!("stopping: {} runs may finish within {grace:?}; again to interrupt them", worker.running()));
    }
    let interrupted = tokio::select! {
        interrupted = worker.stop(grace) => interrupted,
        () = signals.next() => worker.stop(std::time::Duration::ZERO).await,
    };
    listening.end().await;
    // It stops between two schedules; what it had taken goes on elsewhere.
    if let Err(error) = polling.await {
        output::note(&format!("warning: the schedules' poller ended badly: {error}"));
    }
    if interrupted > 0 && !global.quiet {
        output::note(&format!("{interrupted} runs were given back; they start again elsewhere"));
    }
    // Others needn't wait to notice that this process is gone. When it can't be told, they do.
    if let Err(error) = host.close().await {
        output::note(&format!("warning: {}", error.chain()));
    }
    Ok(Done::Ok)
}

fn settings(configured: &Server, args: Serve) -> landfall::Result<Server> {
    let mut server = configured.clone();
    if let Some(listen) = args.listen {
        server.listen = listen;
    }
    if let Some(name) = args.name {
        server.name = Some(name.parse()?);
    }
    if let Some(lease) = args.lease {
        if !(LEASE_MIN..=LEASE_MAX).contains(&lease) {
            return Err(landfall::Error::usage(format!("a lease lasts from {LEASE_MIN:?} to {LEASE_MAX:?}")));
        }
        server.lease = lease;
    }
    if let Some(poll) = args.poll {
        server.poll = poll.max(POLL_MIN);
    }
    Ok(server)
}

/// Returns the machine's name, as far as a replica can have it.
fn machine_name() -> landfall::Result<ReplicaName> {
    let text = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let text: String = text
        .trim()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' })
        .take(ReplicaName::MAX_LEN)
        .collect();
    match text.trim_start_matches(['.', '_', '-']) {
        "" => "replica".parse(),
        name => name.parse(),
    }
}

/// SIGTERM and Ctrl-C.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
        // A signal that comes twice at once (to the group, and to the process) is one.
        SystemClock.sleep(std::time::Duration::from_millis(50)).await;
        while self.pending().await {}
    }

    async fn pending(&mut self) -> bool {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => true,
            _ = self.interrupt.recv() => true,
            () = std::future::ready(()) => false,
        }
    }
}
