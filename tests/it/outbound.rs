//! Requests over real connections, from the attacker's side: servers that redirect inwards, echo credentials, never end, and lie.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use landfall::capability::fetch::{self, Content, FetchRequest, FetchResponse, Form};
use landfall::capability::progress::{AuditEvents, CollectedEvents, GuestEvent};
use landfall::capability::refusal::Refusal;
use landfall::clock::SystemClock;
use landfall::config::Config;
use landfall::id::RunId;
use landfall::outbound::{AgentOutbound, Door, Outbound};
use landfall::policy::resolve::{Answer, GivenAnswers, ResolveError, Resolver};
use landfall::secret::{Mask, Secret};
use landfall_tests::web::{self, Authority, Web, answer};
use tokio::io::AsyncWriteExt;

const TOKEN: &str = "tok_7Hq2+Zs/9xWvB4nM1kLp0aEr";

/// The way out of an agent whose config has these lines; every name is at this machine's loopback address, which is opened for
/// `a.example.com` to `d.example.com`.
struct Way {
    door: Door,
    events: Arc<CollectedEvents>,
}

#[derive(Debug)]
struct Counting(GivenAnswers, AtomicUsize);

#[async_trait::async_trait]
impl Resolver for Counting {
    async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, ResolveError> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.resolve(name).await
    }
}

fn loopback() -> GivenAnswers {
    GivenAnswers::new().every(Answer::Addresses(vec!["127.0.0.1".parse().unwrap()]))
}

fn config(lines: &str) -> Config {
    let opened: String = ["a", "b", "c", "d"].iter().map(|name| format!("\"{name}.example.com\" = [\"127.0.0.0/8\"]\n")).collect();
    let text = format!(
        "version = 1\n[agents.a]\ncomponent = \"a.wasm\"\ncredentials = [\"KEY\"]\n{lines}\n[agents.a.private_addresses]\n{opened}\
         [credentials.KEY]\nsource = {{ env = \"KEY\" }}\naudience = [\"https://a.example.com\"]\n"
    );
    Config::parse("landfall.toml", &text, std::path::Path::new("/")).unwrap()
}

fn way_with(mut config: Config, ports: &[u16], resolver: Arc<dyn Resolver>, ca: Option<&str>) -> Way {
    let secret = Secret::new("KEY", TOKEN).unwrap();
    let audience = ports.iter().map(|port| format!("https://a.example.com:{port}"));
    let audience = audience.map(|text| landfall::policy::credentials::Audience::parse(&text).unwrap());
    let key = config.credentials.get_mut("KEY").unwrap();
    key.audience.extend(audience);
    key.uses.fetch = true;
    let name = "a".parse().unwrap();
    let limits = config.agents[&name].outbound.limits.clone();
    let outbound = Outbound::new(resolver, Arc::new(SystemClock), Mask::new([&secret]));
    let secrets = [("KEY".to_owned(), secret.clone())].into();
    let agent = AgentOutbound::new(outbound, config.egress(&name).unwrap(), secrets, ca.map(str::as_bytes), limits).unwrap();
    let events = Arc::new(CollectedEvents::default());
    let door = agent.open(RunId::new_v7(1, [7; 10]), Arc::new(AuditEvents(Arc::clone(&events) as _)));
    Way { door, events }
}

/// A way out to these loopback servers by any of the names.
fn way(servers: &[&Web], more: &str, ca: Option<&str>) -> Way {
    let hosts: String = servers.iter().map(|server| format!("\"*.example.com:{}\", ", server.port())).collect();
    let ports: Vec<u16> = servers.iter().map(|server| server.port()).collect();
    way_with(config(&format!("allowed_outbound_hosts = [{hosts}]\n{more}")), &ports, Arc::new(loopback()), ca)
}

fn get(url: String) -> FetchRequest {
    FetchRequest {
        method: "GET".to_owned(),
        url,
        headers: Vec::new(),
        body: Bytes::new(),
        form: Form::Text,
        timeout: None,
        max_bytes: None,
    }
}

async fn fetch(way: &Way, url: String) -> Result<FetchResponse, Refusal> {
    fetch::send(&way.door, get(url)).await
}

fn text(response: &FetchResponse) -> &str {
    match &response.content {
        Content::Text(text) => text,
        Content::Bytes(_) => panic!("bytes"),
    }
}

/// The code of a denial.
fn denied(result: Result<FetchResponse, Refusal>) -> String {
    match result {
        Err(Refusal::Denied(denial)) => denial.code,
        other => panic!("not denied: {other:?}"),
    }
}

fn unavailable(result: Result<FetchResponse, Refusal>) -> String {
    match result {
        Err(Refusal::Unavailable(why)) => why,
        other => panic!("not unavailable: {other:?}"),
    }
}

fn header<'r>(request: &'r str, name: &str) -> Option<&'r str> {
    request.lines().find_map(|line| {
        let (found, value) = line.split_once(": ")?;
        found.eq_ignore_ascii_case(name).then_some(value)
    })
}

#[tokio::test]
async fn an_ordinary_answer_comes_whole_and_is_noted() {
    let web =
        Web::answering(None, |_| answer("200 OK", "content-type: text/plain; charset=latin1\r\nx-a: b\r\n", b"gr\xfc\xdf")).await.unwrap();
    let way = way(&[&web], "", None);
    let url = format!("http://a.example.com:{}/x?y=1#part", web.port());
    let response = fetch(&way, url).await.unwrap();
    assert_eq!((response.status, text(&response), response.truncated), (200, "grüß", false));
    assert_eq!(response.url, format!("http://a.example.com:{}/x?y=1", web.port()));
    assert!(response.headers.contains(&("x-a".to_owned(), "b".to_owned())));
    let request = &web.requests()[0];
    assert!(request.starts_with("GET /x?y=1 HTTP/1.1\r\n"), "{request}");
    assert_eq!(header(request, "host"), Some(format!("a.example.com:{}", web.port()).as_str()));
    assert!(header(request, "user-agent").unwrap().starts_with("landfall/"));
    // In clear text no credential goes along.
    assert_eq!(header(request, "authorization"), None);
    let events = way.events.take();
    let [GuestEvent::Sent(sent)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((sent.status, sent.outcome, sent.received, sent.credential.as_deref()), (Some(200), "ok", 4, None));
    assert_eq!(way.door.usage().requests, 1);
}

#[tokio::test]
async fn a_name_is_asked_for_once_and_only_what_was_judged_is_connected_to() {
    let web = Web::answering(None, |_| answer("200 OK", "", "hello")).await.unwrap();
    let resolver = Arc::new(Counting(loopback(), AtomicUsize::new(0)));
    let hosts = format!("allowed_outbound_hosts = [\"a.example.com:{0}\", \"x.example.org:{0}\"]", web.port());
    let way = way_with(config(&hosts), &[], Arc::clone(&resolver) as _, None);
    fetch(&way, format!("http://a.example.com:{}/", web.port())).await.unwrap();
    assert_eq!(resolver.1.load(Ordering::SeqCst), 1);
    // Where loopback isn't opened, an answer that leads there is refused, and nobody comes to the server.
    assert_eq!(denied(fetch(&way, format!("http://x.example.org:{}/", web.port())).await), "ip_loopback");
    assert_eq!(denied(fetch(&way, format!("http://127.0.0.1:{}/", web.port())).await), "ip_loopback");
    assert_eq!(web.connections(), 1);
}

#[tokio::test]
async fn one_bad_answer_among_good_ones_refuses_the_name() {
    let web = Web::answering(None, |_| answer("200 OK", "", "hello")).await.unwrap();
    let mixed = vec!["127.0.0.1".parse().unwrap(), "10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()];
    let hosts = format!("allowed_outbound_hosts = [\"a.example.com:{}\"]", web.port());
    let way = way_with(config(&hosts), &[], Arc::new(GivenAnswers::new().every(Answer::Addresses(mixed))), None);
    assert_eq!(denied(fetch(&way, format!("http://a.example.com:{}/", web.port())).await), "dns_mixed");
    assert_eq!(web.connections(), 0);
}

#[tokio::test]
async fn a_redirect_to_an_inner_server_never_gets_there() {
    let inner = Web::answering(None, |_| answer("200 OK", "", "the inner secret")).await.unwrap();
    for location in [
        format!("http://127.0.0.1:{}/", inner.port()),
        format!("http://[::ffff:127.0.0.1]:{}/", inner.port()),
        format!("http://2130706433:{}/", inner.port()),
        format!("http://inner.example.org:{}/", inner.port()),
        format!("//localhost:{}/", inner.port()),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "file:///etc/passwd".to_owned(),
    ] {
        let to = location.clone();
        let outer = Web::answering(None, move |_| answer("302 Found", &format!("location: {to}\r\n"), "")).await.unwrap();
        let way = way(&[&outer], "", None);
        let code = denied(fetch(&way, format!("http://a.example.com:{}/", outer.port())).await);
        assert!(
            ["ip_loopback", "ip_mapped", "port", "not_allowed", "host_single_label", "ip_linklocal", "scheme"].contains(&code.as_str()),
            "{location}: {code}"
        );
        assert_eq!(outer.connections(), 1);
        assert!(way.events.take().iter().any(|event| matches!(event, GuestEvent::Denied(_))));
    }
    assert_eq!(inner.connections(), 0);
}

#[tokio::test]
async fn redirects_end_and_bodies_and_keys_stay_at_their_origin() {
    let other = Web::answering(None, |_| answer("200 OK", "", "other")).await.unwrap();
    let to = other.port();
    let web = Web::answering(None, move |request| match request.split(' ').nth(1).unwrap() {
        "/loop" => answer("302 Found", "location: /loop\r\n", ""),
        "/away" => answer("302 Found", &format!("location: http://b.example.com:{to}/\r\n"), ""),
        "/away-with-body" => answer("307 Temporary Redirect", &format!("location: http://b.example.com:{to}/\r\n"), ""),
        "/see-other" => answer("303 See Other", "location: /seen\r\n", ""),
        "/refresh" => answer("200 OK", "refresh: 0;url=http://127.0.0.1/\r\n", "still here"),
        _ => answer("200 OK", "", "here"),
    })
    .await
    .unwrap();
    let way = way(&[&web, &other], "", None);
    let at = |path: &str| format!("http://a.example.com:{}{path}", web.port());
    assert_eq!(denied(fetch(&way, at("/loop")).await), "redirects");
    assert_eq!(web.requests().len(), 6);
    assert_eq!(text(&fetch(&way, at("/refresh")).await.unwrap()), "still here");

    let mut request = get(at("/away"));
    request.headers = vec![("x-api-key".to_owned(), b"mine".to_vec()), ("accept-language".to_owned(), b"de".to_vec())];
    let response = fetch::send(&way.door, request).await.unwrap();
    assert_eq!((text(&response), response.url.as_str()), ("other", format!("http://b.example.com:{to}/").as_str()));
    let last = other.requests().pop().unwrap();
    assert_eq!((header(&last, "x-api-key"), header(&last, "accept-language")), (None, Some("de")));

    let post = |path: &str| FetchRequest { method: "POST".to_owned(), body: Bytes::from_static(b"payload"), ..get(at(path)) };
    assert_eq!(denied(fetch::send(&way.door, post("/away-with-body")).await), "redirect_body");
    assert_eq!(text(&fetch::send(&way.door, post("/see-other")).await.unwrap()), "here");
    let last = web.requests().pop().unwrap();
    assert!(last.starts_with("GET /seen") && !last.contains("payload"), "{last}");
    assert_eq!(other.requests().len(), 1);
}

#[tokio::test]
async fn a_credential_goes_to_its_audience_over_tls_and_to_nobody_else() {
    let authority = Authority::new("test authority").unwrap();
    let tls = authority.tls(&["a.example.com", "b.example.com"], false, &["http/1.1"]).unwrap();
    let web = Web::answering(Some(tls), |request| match request.split(' ').nth(1).unwrap() {
        "/leave" => {
            let port = header(request, "host").unwrap().split(':').nth(1).unwrap().to_owned();
            answer("302 Found", &format!("location: https://b.example.com:{port}/back\r\n"), "")
        }
        "/back" => {
            let port = header(request, "host").unwrap().split(':').nth(1).unwrap().to_owned();
            answer("302 Found", &format!("location: https://a.example.com:{port}/end\r\n"), "")
        }
        _ => answer("200 OK", "", "fine"),
    })
    .await
    .unwrap();
    let way = way(&[&web], "", Some(authority.pem()));
    let at = |host: &str, path: &str| format!("https://{host}.example.com:{}{path}", web.port());
    let bearer = format!("Bearer {TOKEN}");
    fetch(&way, at("a", "/")).await.unwrap();
    fetch(&way, at("b", "/")).await.unwrap();
    fetch(&way, at("a", "/leave")).await.unwrap();
    let sent: Vec<(String, Option<String>)> = web
        .requests()
        .iter()
        .map(|request| (request.split(' ').nth(1).unwrap().to_owned(), header(request, "authorization").map(str::to_owned)))
        .collect();
    let expected = [("/", Some(bearer.clone())), ("/", None), ("/leave", Some(bearer)), ("/back", None), ("/end", None)];
    assert_eq!(sent, expected.map(|(path, value)| (path.to_owned(), value)));
    // Its header is the host's there, also for a guest that only guesses.
    let mut guess = get(at("a", "/"));
    guess.headers = vec![("Authorization".to_owned(), b"Bearer guess".to_vec())];
    assert_eq!(denied(fetch::send(&way.door, guess).await), "header_reserved");
    let noted = way.events.take();
    assert!(noted.iter().any(|event| matches!(event, GuestEvent::Sent(sent) if sent.credential.as_deref() == Some("KEY"))));
    assert!(!format!("{noted:?}").contains(TOKEN));
}

#[tokio::test]
async fn a_credential_that_comes_back_is_never_handed_over() {
    let authority = Authority::new("test authority").unwrap();
    let tls = || authority.tls(&["a.example.com"], false, &[]).unwrap();
    let percent: String = TOKEN.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let mut utf16 = vec![0xff, 0xfe];
    utf16.extend(TOKEN.encode_utf16().flat_map(u16::to_le_bytes));
    let html = format!("<html><body>&#{};{}</body></html>", TOKEN.as_bytes()[0], &TOKEN[1..]);
    let bodies: Vec<(&str, Vec<u8>)> = vec![
        ("", format!("you sent {TOKEN}").into_bytes()),
        ("", hex(TOKEN.as_bytes()).into_bytes()),
        ("", percent.into_bytes()),
        ("", format!("Bearer {TOKEN}").replace('/', "\\/").into_bytes()),
        ("content-type: text/plain\r\n", utf16),
        ("content-encoding: gzip\r\n", gzip(format!("you sent {TOKEN}").as_bytes()).await),
    ];
    for (headers, body) in bodies {
        let web = Web::answering(Some(tls()), move |_| answer("200 OK", headers, &body)).await.unwrap();
        let way = way(&[&web], "", Some(authority.pem()));
        assert_eq!(denied(fetch(&way, format!("https://a.example.com:{}/", web.port())).await), "leak", "{headers}");
        assert!(!format!("{:?}", way.events.take()).contains(TOKEN));
    }
    // In the text of a page only its entities hide it: whether it is decoded or not, it isn't whole.
    let web = Web::answering(Some(tls()), move |_| answer("200 OK", "content-type: text/html\r\n", &html)).await.unwrap();
    let way_html = way(&[&web], "", Some(authority.pem()));
    let page =
        fetch::send(&way_html.door, FetchRequest { form: Form::Readable, ..get(format!("https://a.example.com:{}/", web.port())) }).await;
    assert!(page.is_err() || !format!("{page:?}").contains(TOKEN));

    for place in ["x-echo: ", "set-cookie: key=", "location: https://a.example.com/?k="] {
        let web = Web::answering(Some(tls()), move |_| answer("200 OK", &format!("{place}{TOKEN}\r\n"), "")).await.unwrap();
        let way = way(&[&web], "", Some(authority.pem()));
        assert_eq!(denied(fetch(&way, format!("https://a.example.com:{}/", web.port())).await), "leak", "{place}");
    }
    // In chunks, one byte each.
    let web = Web::start(Some(tls()), |mut stream, _| async move {
        if web::read_request(&mut stream).await.is_none() {
            return;
        }
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
        for byte in format!("it was {TOKEN}, wasn't it").bytes() {
            let _ = stream.write_all(format!("1\r\n{}\r\n", byte as char).as_bytes()).await;
            let _ = stream.flush().await;
        }
        let _ = stream.write_all(b"0\r\n\r\n").await;
    })
    .await
    .unwrap();
    let way = way(&[&web], "", Some(authority.pem()));
    assert_eq!(denied(fetch(&way, format!("https://a.example.com:{}/", web.port())).await), "leak");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

async fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = async_compression::tokio::write::GzipEncoder::new(Vec::new());
    encoder.write_all(bytes).await.unwrap();
    encoder.shutdown().await.unwrap();
    encoder.into_inner()
}

#[tokio::test]
async fn certificates_are_checked_by_name_time_and_authority() {
    let (authority, stranger) = (Authority::new("test authority").unwrap(), Authority::new("another authority").unwrap());
    let names = ["a.example.com"];
    for (tls, says) in [
        (authority.tls(&["other.example.com"], false, &[]).unwrap(), "is for another name"),
        (authority.tls(&names, true, &[]).unwrap(), "has expired"),
        (stranger.tls(&names, false, &[]).unwrap(), "of an authority that isn't trusted"),
        (web::self_signed(&names).unwrap(), "isn't"),
    ] {
        let web = Web::answering(Some(tls), |_| answer("200 OK", "", "hello")).await.unwrap();
        let way = way(&[&web], "", Some(authority.pem()));
        let why = unavailable(fetch(&way, format!("https://a.example.com:{}/", web.port())).await);
        assert!(why.contains("the certificate of a.example.com") && why.contains(says), "{why}");
        assert!(web.requests().is_empty());
    }
    // An authority is trusted only where the operator added it.
    let web = Web::answering(Some(authority.tls(&names, false, &[]).unwrap()), |_| answer("200 OK", "", "hello")).await.unwrap();
    let url = format!("https://a.example.com:{}/", web.port());
    assert!(unavailable(fetch(&way(&[&web], "", None), url.clone()).await).contains("isn't trusted"));
    assert_eq!(text(&fetch(&way(&[&web], "", Some(authority.pem())), url).await.unwrap()), "hello");
}

#[tokio::test]
async fn http2_is_spoken_where_it_is_offered_and_its_connection_is_shared() {
    let authority = Authority::new("test authority").unwrap();
    let tls = authority.tls(&["a.example.com"], false, &["h2"]).unwrap();
    let web = Web::start(Some(tls), |stream, seen| async move {
        let service = hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
            seen.note(format!("{} {} {:?}", request.method(), request.uri(), request.headers().get("authorization")));
            async move { Ok::<_, std::convert::Infallible>(hyper::Response::new(Full::new(Bytes::from_static(b"two")))) }
        });
        let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
    })
    .await
    .unwrap();
    let way = way(&[&web], "", Some(authority.pem()));
    for _ in 0..3 {
        assert_eq!(text(&fetch(&way, format!("https://a.example.com:{}/x", web.port())).await.unwrap()), "two");
    }
    assert_eq!(web.connections(), 1);
    let requests = web.requests();
    assert!(requests[0].contains(&format!("https://a.example.com:{}/x", web.port())) && requests[0].contains(TOKEN), "{requests:?}");
}

#[tokio::test]
async fn connections_are_kept_and_one_that_was_closed_meanwhile_costs_nothing() {
    let web = Web::answering(None, |_| answer("200 OK", "", "hello")).await.unwrap();
    let way = way(&[&web], "", None);
    let url = || format!("http://a.example.com:{}/", web.port());
    for _ in 0..5 {
        fetch(&way, url()).await.unwrap();
    }
    assert_eq!(web.connections(), 1);
    let closing = Web::start(None, |mut stream, seen| async move {
        if let Some(request) = web::read_request(&mut stream).await {
            seen.note(request);
            let _ = stream.write_all(&answer("200 OK", "", "once")).await;
        }
    })
    .await
    .unwrap();
    let way = self::way(&[&closing], "", None);
    for _ in 0..3 {
        assert_eq!(text(&fetch(&way, format!("http://a.example.com:{}/", closing.port())).await.unwrap()), "once");
    }
    assert_eq!(closing.requests().len(), 3);
}

#[tokio::test]
async fn a_bomb_is_cut_at_the_limit_of_what_it_becomes() {
    // 200 MB of zeros are some 200 KB of gzip, and again as much in each further member.
    let member = gzip(&vec![0; 20 << 20]).await;
    let body: Vec<u8> = member.iter().copied().cycle().take(member.len() * 10).collect();
    let sent = body.len();
    let web = Web::answering(None, move |_| answer("200 OK", "content-encoding: gzip\r\n", &body)).await.unwrap();
    let way = way(&[&web], "[agents.a.outbound]\nresponse = \"1MiB\"", None);
    let response =
        fetch::send(&way.door, FetchRequest { form: Form::Bytes, ..get(format!("http://a.example.com:{}/", web.port())) }).await.unwrap();
    let Content::Bytes(bytes) = &response.content else { panic!("no bytes") };
    assert_eq!((bytes.len(), response.truncated), (1 << 20, true));
    assert!(way.door.usage().received < sent as u64, "no more is read than is needed");
}

#[tokio::test]
async fn codings_that_were_not_asked_for_and_damaged_ones_are_refused() {
    for (coding, body) in [
        ("gzip, gzip", &b"x"[..]),
        ("deflate", b"x"),
        ("compress", b"x"),
        ("gzip", b"this is no gzip"),
        ("zstd", b"nor zstd"),
        ("br", b"\xff\xff\xff"),
    ] {
        let headers = format!("content-encoding: {coding}\r\n");
        let web = Web::answering(None, move |_| answer("200 OK", &headers, body)).await.unwrap();
        let why = unavailable(fetch(&way(&[&web], "", None), format!("http://a.example.com:{}/", web.port())).await);
        assert!(why.contains("cod") || why.contains("encoded"), "{coding}: {why}");
    }
}

#[tokio::test]
async fn heads_without_end_are_refused() {
    let lines: String = (0..100_000).map(|at| format!("x-{at}: y\r\n")).collect();
    let web = Web::answering(None, move |_| answer("200 OK", &lines, "")).await.unwrap();
    let result = fetch(&way(&[&web], "", None), format!("http://a.example.com:{}/", web.port())).await;
    assert!(matches!(&result, Err(Refusal::Limit(_) | Refusal::Unavailable(_))), "{result:?}");
    let long = format!("x: {}\r\n", "y".repeat(70 << 10));
    let web = Web::answering(None, move |_| answer("200 OK", &long, "")).await.unwrap();
    let result = fetch(&way(&[&web], "", None), format!("http://a.example.com:{}/", web.port())).await;
    assert!(matches!(&result, Err(Refusal::Limit(_) | Refusal::Unavailable(_))), "{result:?}");
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "a server that is slow is so in real time")]
async fn servers_that_never_end_are_left() {
    // One says nothing, one drips its head, one drips its body, one stops in the middle.
    let limits = "[agents.a.outbound]\nfirst_byte = \"300ms\"\ngap = \"300ms\"\ntotal = \"1500ms\"";
    for way_of in ["silent", "head", "body", "stop"] {
        let web = Web::start(None, move |mut stream, _| async move {
            if web::read_request(&mut stream).await.is_none() {
                return;
            }
            let (whole, drip): (&[u8], &[u8]) = match way_of {
                "silent" => (b"", b""),
                "head" => (b"", b"HTTP/1.1 200 OK\r\nx: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"),
                "body" => (b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n", b"zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz"),
                _ => (b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nsome", b""),
            };
            let _ = stream.write_all(whole).await;
            for byte in drip {
                let _ = stream.write_all(&[*byte]).await;
                let _ = stream.flush().await;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            std::future::pending::<()>().await;
        })
        .await
        .unwrap();
        let way = way(&[&web], limits, None);
        let result = fetch(&way, format!("http://a.example.com:{}/", web.port())).await;
        assert!(matches!(&result, Err(Refusal::Timeout(_))), "{way_of}: {result:?}");
    }
}

#[tokio::test]
async fn lies_about_framing_are_errors_and_never_another_answer() {
    for lie in [
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff1\r\nhello",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        "HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nhello",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx y: z\r\n\r\n",
        "\0\0\0\0",
        "hello",
    ] {
        let web = Web::start(None, move |mut stream, _| async move {
            if web::read_request(&mut stream).await.is_some() {
                let _ = stream.write_all(lie.as_bytes()).await;
                let _ = stream.flush().await;
            }
        })
        .await
        .unwrap();
        unavailable(fetch(&way(&[&web], "", None), format!("http://a.example.com:{}/", web.port())).await);
    }
}

#[tokio::test]
async fn guests_cannot_smuggle_headers_or_methods() {
    let web = Web::answering(None, |_| answer("200 OK", "", "hello")).await.unwrap();
    let way = way(&[&web], "", None);
    let url = || format!("http://a.example.com:{}/", web.port());
    for (name, value, code) in [
        ("X-A", "b\r\nX-B: c", "header_syntax"),
        ("X-A\r\nX-B", "c", "header_syntax"),
        ("Host", "internal", "header_reserved"),
        (":authority", "internal", "header_reserved"),
        ("Content-Length", "5", "header_reserved"),
        ("Transfer-Encoding", "chunked", "header_reserved"),
        ("Metadata-Flavor", "Google", "header_reserved"),
    ] {
        let mut request = get(url());
        request.headers = vec![(name.to_owned(), value.as_bytes().to_vec())];
        assert_eq!(denied(fetch::send(&way.door, request).await), code, "{name}");
    }
    for method in ["GET / HTTP/1.1\r\nHost: x\r\n\r\nGET", "", "get", "G\0T"] {
        let request = FetchRequest { method: method.to_owned(), ..get(url()) };
        assert!(matches!(fetch::send(&way.door, request).await, Err(Refusal::Invalid(_))), "{method:?}");
    }
    assert_eq!(denied(fetch::send(&way.door, FetchRequest { method: "CONNECT".to_owned(), ..get(url()) }).await), "method");
    assert_eq!(web.connections(), 0);
}

#[tokio::test]
async fn budgets_end_what_a_guest_would_do_for_ever() {
    let web = Web::answering(None, |_| answer("200 OK", "", vec![b'x'; 1000])).await.unwrap();
    let url = || format!("http://a.example.com:{}/", web.port());
    let few = way(&[&web], "[agents.a.outbound]\nper_minute = 3", None);
    for _ in 0..3 {
        fetch(&few, url()).await.unwrap();
    }
    assert!(matches!(fetch(&few, url()).await, Err(Refusal::Limit(limit)) if limit.name == "requests-per-minute" && limit.allowed == 3));
    let little = way(&[&web], "[agents.a.outbound]\nrun_bytes = \"1500B\"", None);
    fetch(&little, url()).await.unwrap();
    assert!(matches!(fetch(&little, url()).await, Err(Refusal::Limit(limit)) if limit.name == "egress"));
    let small = way(&[&web], "[agents.a.outbound]\nrequest = \"10B\"", None);
    let request = FetchRequest { method: "POST".to_owned(), body: Bytes::from_static(b"eleven byte"), ..get(url()) };
    assert!(matches!(fetch::send(&small.door, request).await, Err(Refusal::Limit(limit)) if limit.name == "request"));
}

#[tokio::test]
async fn denied_requests_in_a_loop_fill_no_record() {
    let way = way_with(
        config("allowed_outbound_hosts = [\"a.example.com\"]\n[agents.a.outbound]\nper_minute = 5000"),
        &[],
        Arc::new(loopback()),
        None,
    );
    for _ in 0..2000 {
        denied(fetch(&way, "https://b.example.com/".to_owned()).await);
    }
    assert_eq!(way.events.take().len(), 1000);
    assert_eq!(way.door.usage().denied, 2000);
}
