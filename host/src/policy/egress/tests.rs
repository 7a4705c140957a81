use std::sync::Mutex;

use super::super::resolve::{Answer, GivenAnswers, ResolveError};
use super::*;

const PUBLIC: &str = "93.184.216.34";

/// Notes what it was asked.
#[derive(Debug)]
struct Noting(GivenAnswers, Mutex<Vec<String>>);

#[async_trait::async_trait]
impl Resolver for Noting {
    async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, ResolveError> {
        self.1.lock().unwrap().push(name.to_owned());
        self.0.resolve(name).await
    }
}

fn answers(every: &str) -> Noting {
    Noting(GivenAnswers::new().every(Answer::Addresses(vec![every.parse().unwrap()])), Mutex::default())
}

fn gate(asked: &[&str], allowed: Option<&[&str]>) -> Egress {
    let list = |texts: &[&str]| HostList::parse(texts.iter().copied()).unwrap();
    let hosts = Hosts::Listed { asked: list(asked), allowed: allowed.map(list) };
    Egress { hosts, ..Egress::listed("a", HostList::default()) }
}

async fn admit(gate: &Egress, url: &str, resolver: &dyn Resolver) -> Result<Admitted, Refused> {
    gate.admit(&Ask { url, method: &Method::GET, headers: &[], from: None }, resolver, &OwnAddresses::default()).await
}

#[tokio::test]
async fn an_unlisted_host_causes_no_question_to_a_name_server() {
    let resolver = answers(PUBLIC);
    let refused = admit(&gate(&["a.example.com"], None), "https://b.example.com/", &resolver).await.unwrap_err();
    assert_eq!((refused.step, refused.code), (Step::List, "not_allowed"));
    assert_eq!(refused.config_line.as_deref(), Some(r#"[agents.a] allowed_outbound_hosts = ["https://b.example.com"]"#));
    assert!(resolver.1.lock().unwrap().is_empty());
    admit(&gate(&["a.example.com"], None), "https://a.example.com/", &resolver).await.unwrap();
    assert_eq!(*resolver.1.lock().unwrap(), ["a.example.com"]);
}

#[tokio::test]
async fn neither_owner_widens_the_other() {
    let resolver = answers(PUBLIC);
    let (a, b) = ("https://a.example.com/", "https://b.example.com/");
    let both = gate(&["a.example.com", "b.example.com"], Some(&["https://a.example.com"]));
    assert!(admit(&both, a, &resolver).await.is_ok());
    let refused = admit(&both, b, &resolver).await.unwrap_err();
    assert_eq!(refused.config_line.as_deref(), Some(r#"[policy] allowed_outbound_hosts = ["https://b.example.com"]"#));
    assert_eq!(admit(&both, "http://a.example.com/", &resolver).await.unwrap_err().code, "not_allowed");
    let unasked = gate(&[], Some(&["*"]));
    assert_eq!(admit(&unasked, a, &resolver).await.unwrap_err().why, "no hosts are allowed");
    assert_eq!(admit(&gate(&["*"], Some(&[])), a, &resolver).await.unwrap_err().code, "not_allowed");
}

#[tokio::test]
async fn one_bad_address_refuses_the_name_and_the_text_names_none() {
    let list = gate(&["*.example.com"], None);
    let resolver = GivenAnswers::new()
        .name("mixed.example.com", Answer::Addresses(vec![PUBLIC.parse().unwrap(), "10.0.0.7".parse().unwrap()]))
        .name("inner.example.com", Answer::Addresses(vec!["10.0.0.7".parse().unwrap(), "127.0.0.1".parse().unwrap()]))
        .name("many.example.com", Answer::Addresses(vec![PUBLIC.parse().unwrap(); ANSWERS_MAX + 1]));
    for (name, code) in [("mixed", "dns_mixed"), ("inner", "ip_private"), ("many", "dns_too_many"), ("none", "dns_fail")] {
        let refused = admit(&list, &format!("https://{name}.example.com/"), &resolver).await.unwrap_err();
        assert_eq!(refused.code, code);
        assert!(!refused.to_string().contains("10.0.0.7"), "{refused}");
    }
}

#[tokio::test]
async fn an_opened_range_lifts_the_tables_at_its_host_alone() {
    let mut list = gate(&["git.internal", "x.internal", "*.example.com", "10.0.0.7:8443"], None);
    let range = |host: &str| PrivateRange { host: host.to_owned(), nets: vec!["10.0.0.0/8".parse().unwrap()] };
    list.private = vec![range("git.internal"), range("10.0.0.7")];
    let resolver = answers("10.0.0.7");
    assert!(admit(&list, "https://git.internal/", &resolver).await.is_ok());
    assert_eq!(admit(&list, "https://x.internal/", &resolver).await.unwrap_err().code, "host_special");
    assert_eq!(admit(&list, "https://a.example.com/", &resolver).await.unwrap_err().code, "ip_private");
    assert_eq!(admit(&list, "https://git.internal/", &answers("192.168.0.1")).await.unwrap_err().code, "ip_private");
    let metadata = admit(&list, "https://git.internal/", &answers("169.254.169.254")).await.unwrap_err();
    assert_eq!((metadata.code, metadata.config_line), ("ip_linklocal", None));
    assert!(admit(&list, "https://10.0.0.7:8443/", &resolver).await.is_ok());
    // An opened range isn't an entry of the list.
    assert_eq!(admit(&list, "https://10.0.0.7/", &resolver).await.unwrap_err().code, "not_allowed");
}

#[tokio::test]
async fn redirects_pass_the_whole_gate_and_never_lose_tls() {
    let list = gate(&["*.example.com"], None);
    let resolver = answers(PUBLIC);
    let page = Target::parse("https://a.example.com/").unwrap();
    let mut chain = Chain::begin(&page);
    let go = async |location: &str, chain: &Chain| {
        let ask = Ask { url: location, method: &Method::GET, headers: &[], from: Some((&page, chain)) };
        list.admit(&ask, &resolver, &OwnAddresses::default()).await.map_or_else(|refused| refused.code, |_| "ok")
    };
    assert_eq!(go("/b", &chain).await, "ok");
    assert_eq!(go("http://b.example.com/", &chain).await, "downgrade");
    assert_eq!(go("https://b.example.org/", &chain).await, "not_allowed");
    assert_eq!(go("http://[::ffff:7f00:1]/", &chain).await, "ip_mapped");
    for _ in 0..REDIRECTS_MAX {
        assert_eq!(go("/b", &chain).await, "ok");
        chain.follow(&page);
    }
    assert_eq!(go("/b", &chain).await, "redirects");
}

#[tokio::test]
async fn methods_that_make_tunnels_or_echo_requests_are_never_sent() {
    for method in [Method::CONNECT, Method::TRACE] {
        let ask = Ask { url: "https://a.example.com/", method: &method, headers: &[], from: None };
        let refused = gate(&["*"], None).admit(&ask, &answers(PUBLIC), &OwnAddresses::default()).await.unwrap_err();
        assert_eq!((refused.step, refused.code), (Step::Method, "method"));
    }
}

proptest::proptest! {
    /// Whatever the URL: an admitted one has a listed host, public addresses, no user info, and reads the same when parsed again.
    #[test]
    fn no_url_gets_past_the_list(
        scheme in "(https?|HTTP|ftp|file)?:?[/\\\\]{0,3}",
        user in "([a-z%]{0,3}(:[a-z]{0,2})?@)?",
        host in "(a\\.example\\.com|[a-z0-9.]{0,12}|0x[0-9a-f]{1,8}|\\[[0-9a-f:.]{0,20}\\]|[a-z%ａ-ｚ。⓪①]{0,8}\\.example\\.com)\\.?",
        rest in "(:[0-9]{0,5})?([/\\\\?#@][ -~]{0,12})?",
    ) {
        let url = format!("{scheme}{user}{host}{rest}");
        let list = gate(&["*.example.com", "a.example.com"], None);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        if let Ok(admitted) = runtime.block_on(admit(&list, &url, &answers(PUBLIC))) {
            let text = admitted.target.to_string();
            let again = ::url::Url::parse(&text).unwrap();
            proptest::prop_assert!(again.host_str().unwrap().ends_with(".example.com"), "{url:?} became {text:?}");
            proptest::prop_assert!(again.username().is_empty() && again.password().is_none());
            proptest::prop_assert!(matches!(again.scheme(), "http" | "https"));
            proptest::prop_assert_eq!(Target::parse(&text).unwrap(), admitted.target);
        }
    }
}
