//! What a response's redirect asks for (RFC 9110 15.4). Whether it may be followed is the gate's decision, as for a first request.

use http::{HeaderMap, Method, StatusCode, header};

/// What the next request of a chain is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Redirect<'r> {
    /// What the `Location` header holds.
    pub location: &'r str,
    /// The method of the next request.
    pub method: Method,
    /// Whether the body goes along, as long as the origin stays the same.
    pub keeps_body: bool,
}

/// Returns what a response redirects to; none when it is to be handed over as it is: another status than 301, 302, 303, 307 or 308,
/// or no usable `Location`. A `Refresh` header is never followed.
#[must_use]
pub fn of_response<'r>(status: StatusCode, headers: &'r HeaderMap, method: &Method) -> Option<Redirect<'r>> {
    let as_get = match status {
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => *method == Method::POST,
        StatusCode::SEE_OTHER => *method != Method::HEAD,
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => false,
        _ => return None,
    };
    let mut locations = headers.get_all(header::LOCATION).iter();
    let location = std::str::from_utf8(locations.next()?.as_bytes()).ok()?;
    // Two different places to go are none.
    if locations.next().is_some() {
        return None;
    }
    Some(Redirect { location, method: if as_get { Method::GET } else { method.clone() }, keeps_body: !as_get })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirect(status: u16, method: &Method) -> Option<(Method, bool)> {
        let headers = HeaderMap::from_iter([(header::LOCATION, "/next".parse().unwrap())]);
        of_response(StatusCode::from_u16(status).unwrap(), &headers, method).map(|redirect| (redirect.method, redirect.keeps_body))
    }

    #[test]
    fn methods_and_bodies_follow_the_statuses() {
        assert_eq!(redirect(302, &Method::POST), Some((Method::GET, false)));
        assert_eq!(redirect(301, &Method::PUT), Some((Method::PUT, true)));
        assert_eq!(redirect(303, &Method::DELETE), Some((Method::GET, false)));
        assert_eq!(redirect(303, &Method::HEAD), Some((Method::HEAD, true)));
        assert_eq!(redirect(308, &Method::POST), Some((Method::POST, true)));
        for status in [200, 201, 300, 304, 305, 306, 399] {
            assert_eq!(redirect(status, &Method::GET), None, "{status}");
        }
    }

    #[test]
    fn a_location_that_is_missing_or_said_twice_is_handed_over() {
        let mut headers = HeaderMap::new();
        headers.insert("refresh", "0;url=http://127.0.0.1/".parse().unwrap());
        assert_eq!(of_response(StatusCode::FOUND, &headers, &Method::GET), None);
        headers.append(header::LOCATION, "https://a.example.com/".parse().unwrap());
        assert!(of_response(StatusCode::FOUND, &headers, &Method::GET).is_some());
        headers.append(header::LOCATION, "https://b.example.com/".parse().unwrap());
        assert_eq!(of_response(StatusCode::FOUND, &headers, &Method::GET), None);
    }
}
