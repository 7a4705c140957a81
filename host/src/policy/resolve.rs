//! From names to addresses. The gate asks once for each request and connects to nothing else than what it judged.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Most addresses of one answer.
pub const ANSWERS_MAX: usize = 32;

/// Why a name has no addresses: a text for the operator's log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResolveError(pub String);

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Asks for the addresses of a name.
#[async_trait::async_trait]
pub trait Resolver: Send + Sync + fmt::Debug {
    /// Returns all addresses of an absolute name (without the dot at its end). An empty answer is an answer.
    ///
    /// # Errors
    /// Why there is none.
    async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, ResolveError>;
}

/// The system's resolver.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

#[async_trait::async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, ResolveError> {
        // The dot makes the name absolute: no search domain completes it, and no entry of a hosts file matches.
        let found = tokio::net::lookup_host((format!("{name}."), 0)).await.map_err(|error| ResolveError(error.to_string()))?;
        let mut addresses = Vec::new();
        for address in found.map(|socket| socket.ip()) {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        Ok(addresses)
    }
}

/// An answer that was given beforehand.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// These addresses; none is an empty answer.
    Addresses(Vec<IpAddr>),
    /// There is no such name.
    NoSuchName,
}

/// Answers for some names, given beforehand, over another resolver for the rest.
#[derive(Clone, Debug, Default)]
pub struct GivenAnswers {
    names: BTreeMap<String, Answer>,
    every: Option<Answer>,
    rest: Option<Arc<dyn Resolver>>,
}

impl GivenAnswers {
    /// Begins with none: every name is unknown.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives a name's answer. The name is in lower case, with A-labels and without a dot at its end.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>, answer: Answer) -> Self {
        self.names.insert(name.into(), answer);
        self
    }

    /// Gives the answer of every other name.
    #[must_use]
    pub fn every(mut self, answer: Answer) -> Self {
        self.every = Some(answer);
        self
    }

    /// Asks another resolver for every other name.
    #[must_use]
    pub fn or_else(mut self, rest: Arc<dyn Resolver>) -> Self {
        self.rest = Some(rest);
        self
    }
}

#[async_trait::async_trait]
impl Resolver for GivenAnswers {
    async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, ResolveError> {
        match (self.names.get(name).or(self.every.as_ref()), &self.rest) {
            (Some(Answer::Addresses(addresses)), _) => Ok(addresses.clone()),
            (Some(Answer::NoSuchName), _) | (None, None) => Err(ResolveError(format!("there is no name {name}"))),
            (None, Some(rest)) => rest.resolve(name).await,
        }
    }
}
