//! Guests on the way out: through `fetch` and through an ordinary client of `wasi:http`, in whole turns. Nothing that a guest can read,
//! nothing in a log, a record or the store ever holds the credential.

use std::path::Path;
use std::sync::Arc;

use landfall::cancel::Cancel;
use landfall::clock::SystemClock;
use landfall::component::{CacheOptions, EngineOptions};
use landfall::config::Config;
use landfall::host::Host;
use landfall::policy::credentials::Audience;
use landfall::policy::resolve::{Answer, GivenAnswers};
use landfall::random::SystemRandom;
use landfall::secret::Secret;
use landfall::session::record::{RunRecord, Text};
use landfall::store::Store;
use landfall::trigger::{NoWatch, TurnRequest};
use landfall_tests::guests;
use landfall_tests::web::{Authority, Web, answer};

const TOKEN: &str = "tok_7Hq2+Zs/9xWvB4nM1kLp0aEr";

struct Setup {
    folder: tempfile::TempDir,
    host: Host,
}

/// A host on a store in a folder, with an agent of this guest that may ask these servers as any name below example.com.
async fn setup(guest: &str, servers: &[&Web], ca: Option<&str>) -> Setup {
    let folder = tempfile::tempdir().unwrap();
    let hosts: String = servers.iter().map(|server| format!("\"*.example.com:{}\", ", server.port())).collect();
    let ca_line = match ca {
        None => String::new(),
        Some(pem) => {
            std::fs::write(folder.path().join("ca.pem"), pem).unwrap();
            "[agents.probe.outbound]\nca_file = \"ca.pem\"\n".to_owned()
        }
    };
    let text = format!(
        "version = 1\n[agents.probe]\ncomponent = \"{}\"\ncredentials = [\"KEY\"]\nallowed_outbound_hosts = [{hosts}]\n{ca_line}\
         [agents.probe.private_addresses]\n\"a.example.com\" = [\"127.0.0.1\"]\n\"b.example.com\" = [\"127.0.0.1\"]\n\
         [credentials.KEY]\nsource = {{ env = \"KEY\" }}\naudience = [\"https://a.example.com\"]\ninject = {{ header = \"x-api-key\" }}\n",
        guests::path(guest).display()
    );
    let mut config = Config::parse("landfall.toml", &text, folder.path()).unwrap();
    let audience = servers.iter().map(|server| Audience::parse(&format!("https://a.example.com:{}", server.port())).unwrap());
    config.credentials.get_mut("KEY").unwrap().audience.extend(audience);
    let url = format!("file://{}", folder.path().join("store").display());
    let store = Store::open(&url, &landfall::store::Options::new(), Arc::new(SystemClock), Arc::new(SystemRandom)).await.unwrap();
    let components = CacheOptions::new(guests::target().join("components-cache"));
    let host = Host::builder(store, config)
        .cache_dir(folder.path().join("cache"))
        .engine(EngineOptions { guests: 4, cache: Some(components), ..EngineOptions::default() })
        .secret("KEY", Secret::new("KEY", TOKEN).unwrap())
        .resolver(Arc::new(GivenAnswers::new().every(Answer::Addresses(vec!["127.0.0.1".parse().unwrap()]))))
        .build()
        .unwrap();
    Setup { folder, host }
}

async fn run(setup: &Setup, input: &str) -> RunRecord {
    let request = TurnRequest::new("probe".parse().unwrap(), "s".parse().unwrap(), input);
    setup.host.run(request, Arc::new(NoWatch), Cancel::never()).await.unwrap()
}

async fn output(setup: &Setup, record: &RunRecord) -> Vec<String> {
    let bytes = setup.host.output(record).await.unwrap();
    String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()
}

fn inline(text: Option<&Text>) -> String {
    match text {
        Some(Text::Inline(text)) => text.clone(),
        _ => String::new(),
    }
}

/// Every file below a folder, with what zstd holds undone by nobody: packs are looked through as they are and decoded by the host.
fn search(folder: &Path, needle: &[u8]) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(search(&path, needle));
        } else if std::fs::read(&path).unwrap().windows(needle.len()).any(|window| window == needle) {
            found.push(path);
        }
    }
    found
}

#[tokio::test]
async fn no_byte_that_a_hostile_guest_keeps_holds_the_credential() {
    let authority = Authority::new("test authority").unwrap();
    let tls = authority.tls(&["a.example.com"], false, &[]).unwrap();
    let web = Web::answering(Some(tls), |request| match request.split(' ').nth(1).unwrap() {
        // Whatever was sent comes back.
        "/echo" => answer("200 OK", "content-type: text/plain\r\n", request),
        "/header" => answer("200 OK", &format!("x-echo: {TOKEN}\r\n"), ""),
        "/hex" => answer("200 OK", "", TOKEN.bytes().map(|byte| format!("{byte:02x}")).collect::<String>()),
        _ => answer("200 OK", "", "fine"),
    })
    .await
    .unwrap();
    for guest in ["fetch", "http-client"] {
        let setup = setup(guest, &[&web], Some(authority.pem())).await;
        let at = |path: &str| format!("https://a.example.com:{}{path}", web.port());
        let line = |path: &str| if guest == "fetch" { format!("GET text {}", at(path)) } else { format!("GET {}", at(path)) };
        let key = |value: &str| format!("{} | X-Api-Key: {value}", line("/"));
        let input = [line("/"), line("/echo"), line("/header"), line("/hex"), line("/?k={KEY}"), key("guess")].join("\n");
        let record = run(&setup, &input).await;
        assert!(record.is_completed(), "{:?}", record.failure);
        let said = output(&setup, &record).await;
        assert!(said[0].starts_with("200") && said[0].contains("fine"), "{said:#?}");
        assert!(said[4].starts_with("200"), "{said:#?}");
        for (line, code) in [(1, "leak"), (2, "leak"), (3, "leak"), (5, "header_reserved")] {
            assert!(!said[line].starts_with("200"), "{guest}: {said:#?}");
            if guest == "fetch" {
                assert!(said[line].contains(&format!("denied {code}")), "{said:#?}");
            }
        }
        let events = inline(record.events.as_ref());
        assert!(events.contains("\"event\":\"sent\"") && events.contains("\"credential\":\"KEY\""), "{events}");
        assert!(events.contains("\"event\":\"denied\"") && events.contains("\"code\":\"leak\""), "{events}");
        assert_eq!(record.usage.egress.requests, 5, "{events}");

        let everything = format!("{said:?}{events}{}{record:?}", inline(record.log.as_ref()));
        let half = &TOKEN[..TOKEN.len() / 2];
        assert!(!everything.contains(half), "{everything}");
        assert!(search(setup.folder.path(), half.as_bytes()).is_empty());
        // What the guest kept in its files, decoded as the next turn would read it.
        if guest == "fetch" {
            let checkpoint = setup.host.open_run_checkpoint(&"probe".parse().unwrap(), record.run).await.unwrap();
            let seen = checkpoint.read("/state/seen", 0, 1 << 20).await.unwrap();
            assert!(!String::from_utf8_lossy(&seen).contains(half));
        }
    }
    // The server did get it: else all of this would show nothing.
    assert!(web.requests().iter().any(|request| request.contains(&format!("x-api-key: {TOKEN}"))));
    // Never where the guest had asked for it to be written, nor with its guess.
    assert!(web.requests().iter().all(|request| !request.contains("guess")));
    assert!(web.requests().iter().filter(|request| request.contains("/?k=")).all(|request| !request.contains("x-api-key")));
}

#[tokio::test]
async fn an_ordinary_client_passes_the_same_gate() {
    let web = Web::answering(None, |request| {
        let size = request.split("\r\n\r\n").nth(1).map_or(0, str::len);
        answer("200 OK", "x-a: b\r\n", format!("got {size}"))
    })
    .await
    .unwrap();
    let setup = setup("http-client", &[&web], None).await;
    let port = web.port();
    let input = [
        format!("GET http://a.example.com:{port}/x?y"),
        format!("POST http://b.example.com:{port}/ < hello"),
        format!("GET http://c.example.com:{port}/"),
        format!("GET http://127.0.0.1:{port}/"),
        "GET http://169.254.169.254/latest/meta-data/".to_owned(),
        format!("GET http://a.example.org:{port}/"),
        format!("upload 3000000 http://a.example.org:{port}/"),
        format!("GET http://user@a.example.com:{port}/"),
        format!("CONNECT http://a.example.com:{port}/"),
        format!("GET http://a.example.com:{port}/ | Metadata-Flavor: Google"),
        format!("upload 3000000 http://a.example.com:{port}/"),
    ]
    .join("\n");
    let record = run(&setup, &input).await;
    assert!(record.is_completed(), "{:?}", record.failure);
    let said = output(&setup, &record).await;
    assert!(said[0].starts_with("200") && said[0].ends_with("got 0") && said[0].contains("x-a"), "{said:#?}");
    assert!(said[1].starts_with("200") && said[1].ends_with("got 5"), "{said:#?}");
    for line in &said[2..10] {
        assert!(!line.starts_with("200"), "{said:#?}");
    }
    assert!(said[10].starts_with("200") && said[10].ends_with("got 3000000"), "{said:#?}");
    let events = inline(record.events.as_ref());
    for code in ["ip_loopback", "ip_linklocal", "not_allowed"] {
        assert!(events.contains(&format!("\"code\":\"{code}\"")), "{code}: {events}");
    }
    assert_eq!(web.requests().len(), 3);
    let first = &web.requests()[0];
    assert!(first.starts_with("GET /x?y HTTP/1.1\r\n") && first.contains(&format!("host: a.example.com:{port}\r\n")), "{first}");
}

#[tokio::test]
async fn an_agent_without_hosts_reaches_nothing_by_either_door() {
    let web = Web::answering(None, |_| answer("200 OK", "", "hello")).await.unwrap();
    let setup = setup("http-client", &[], None).await;
    let record =
        run(&setup, &format!("GET http://a.example.com:{}/\nupload 2000000 http://a.example.com:{}/", web.port(), web.port())).await;
    assert!(record.is_completed(), "{:?}", record.failure);
    assert!(output(&setup, &record).await.iter().all(|line| line.contains("HttpRequestDenied")));

    let setup = self::setup("fetch", &[], None).await;
    let record = run(&setup, "GET text http://a.example.com/").await;
    assert!(record.is_completed(), "{:?}", record.failure);
    let said = output(&setup, &record).await;
    let line = r#"[agents.probe] allowed_outbound_hosts = ["http://a.example.com"]"#;
    assert_eq!(said, [format!("denied not_allowed: no hosts are allowed; {line}")]);
    assert!(inline(record.events.as_ref()).contains("\"code\":\"not_allowed\""), "a denial is an event of the run");
    assert_eq!(web.connections(), 0);
}

/// What toolchains for Python and JavaScript make goes the same way: Python by the interface `fetch`, JavaScript by its own `fetch`,
/// which is `wasi:http`.
#[tokio::test]
async fn python_and_javascript_go_through_the_gate() {
    let authority = Authority::new("test authority").unwrap();
    let tls = authority.tls(&["a.example.com", "c.example.com"], false, &[]).unwrap();
    let paragraph = "A paragraph that is long enough to be the text of the page, with commas, and words, and more words. ".repeat(8);
    let page =
        format!("<html><head><title>The page</title></head><body><nav>menu</nav><article><p>{paragraph}</p></article></body></html>");
    let web = Web::answering(Some(tls), move |request| match request.split(' ').nth(1).unwrap() {
        "/echo" => answer("200 OK", "content-type: text/plain\r\n", request),
        "/gone" => answer("410 Gone", "content-type: text/plain\r\n", "gone"),
        _ => answer("200 OK", "content-type: text/html\r\n", &page),
    })
    .await
    .unwrap();
    let port = web.port();
    let urls = [
        format!("https://a.example.com:{port}/page"),
        format!("https://a.example.com:{port}/gone"),
        // The server sends the credential back.
        format!("https://a.example.com:{port}/echo"),
        // A listed name, at an address that is opened for others only.
        format!("https://c.example.com:{port}/"),
        "https://elsewhere.org/".to_owned(),
    ];
    for (guest, says) in [
        ("reader", ["new ", "failed ", "failed ", "failed ", "failed "]),
        ("link-check", ["ok 200 ", "broken 410 ", "broken ", "broken ", "broken "]),
    ] {
        let (setup, before) = (setup(guest, &[&web], Some(authority.pem())).await, web.requests().len());
        let record = run(&setup, &urls.join("\n")).await;
        assert!(record.is_completed(), "{:?}", record.failure);
        let said = output(&setup, &record).await;
        for (line, (begins, url)) in said.iter().zip(says.iter().zip(&urls)) {
            assert!(line.starts_with(&format!("{begins}{url}")), "{guest}: {said:#?}");
        }
        let events = inline(record.events.as_ref());
        for code in ["leak", "ip_loopback", "not_allowed"] {
            assert!(events.contains(&format!("\"code\":\"{code}\"")), "{guest}: {code}: {events}");
        }
        let seen = &web.requests()[before..];
        assert_eq!(seen.len(), 3, "{guest}: {seen:?}");
        assert!(seen.iter().all(|request| request.contains(&format!("x-api-key: {TOKEN}"))), "{guest}: {seen:?}");
        let everything = format!("{said:?}{events}{}{record:?}", inline(record.log.as_ref()));
        assert!(!everything.contains(&TOKEN[..TOKEN.len() / 2]), "{everything}");
        if guest == "reader" {
            assert!(said[4].contains(r#"to allow it: [agents.probe] allowed_outbound_hosts = ["https://elsewhere.org"]"#), "{said:#?}");
            let checkpoint = setup.host.open_run_checkpoint(&"probe".parse().unwrap(), record.run).await.unwrap();
            let file = format!("/workspace/pages/a-example-com-{port}-page.md");
            let kept = String::from_utf8(checkpoint.read(&file, 0, 1 << 20).await.unwrap().to_vec()).unwrap();
            assert!(
                kept.starts_with("# The page\n") && kept.contains("A paragraph that is long enough") && !kept.contains("menu"),
                "{kept}"
            );
        }
        let second = run(&setup, &urls[0]).await;
        assert!(second.is_completed(), "{:?}", second.failure);
        assert!(output(&setup, &second).await[0].starts_with(if guest == "reader" { "same " } else { "ok 200 " }));
    }
}
