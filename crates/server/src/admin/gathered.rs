//! Requests that all brokers of a cluster answer together: lists of what each of them has, one tenant, and one client that may
//! be at any of them.
//!
//! The broker that is asked asks the others one after the other, and merges their pages as they come. So it holds two pages at a
//! time.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::CONTENT_LENGTH;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use barid_peers::Protocol;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::access::Requester;
use super::answer::Refusal;
use super::clients;
use super::page::default_limit;
use super::passing_on::{self, BROKER, OF_SESSION, PassedOn};
use crate::shared::Shared;

/// The lists, by their paths.
const LISTS: [(&str, List); 4] = [
    ("/v1/tenants", TENANTS),
    ("/v1/tenants/{tenant}", List { is_one: true, ..TENANTS }),
    (
        "/v1/tenants/{tenant}/clients",
        List { name: "clients", place: of_client, of_slots: false, ..SESSIONS },
    ),
    ("/v1/tenants/{tenant}/sessions", SESSIONS),
];

const TENANTS: List = List {
    name: "tenants",
    limit: usize::MAX,
    place: of_tenant,
    are_joined: true,
    of_slots: true,
    is_one: false,
};

const SESSIONS: List = List {
    name: "sessions",
    limit: default_limit(),
    place: of_session,
    are_joined: false,
    of_slots: true,
    is_one: false,
};

/// Maximum length of a page of another broker, in bytes. The longest have 10,000 clients.
const PAGE_MAX: usize = 64 * 1024 * 1024;

/// Time in which each of several brokers has to answer, and all of them together. It is less than the time for which a client
/// is served that waits for an answer.
const EACH_WITHIN: Duration = Duration::from_secs(5);
const TOGETHER_WITHIN: Duration = Duration::from_secs(20);

/// A list of which each broker has a part.
#[derive(Clone, Copy)]
struct List {
    /// The name of the list in the answer.
    name: &'static str,
    /// Number of items in an answer, if the request does not say how many.
    limit: usize,
    /// Returns the place of an item in the order of the list.
    place: fn(&Value) -> Place,
    /// Whether those of all brokers at one place become one. Otherwise each item names its broker.
    are_joined: bool,
    /// Whether a broker that is down still has a part: what is in its slots.
    of_slots: bool,
    /// Whether an answer is the only item itself.
    is_one: bool,
}

/// A place in a list. Their order is that of the list.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Named(String),
    Client(clients::Place),
}

impl Place {
    /// The `next` of a page that ends here.
    fn next(&self) -> Value {
        match self {
            Self::Named(name) => name.as_str().into(),
            Self::Client(place) => place.to_string().into(),
        }
    }
}

fn of_tenant(item: &Value) -> Place {
    Place::Named(text(item, "name"))
}

fn of_session(item: &Value) -> Place {
    Place::Named(text(item, "client"))
}

fn of_client(item: &Value) -> Place {
    Place::Client(match item["protocol"] == "AMQP" {
        true => clients::Place::Amqp(item["connection"].as_u64().unwrap_or_default()),
        false => clients::Place::Mqtt(text(item, "client").into()),
    })
}

fn text(item: &Value, name: &str) -> String {
    item[name].as_str().unwrap_or_default().to_owned()
}

/// Answers a request, together with other brokers if several may have what it is about. `path` is that of the routes. `home` has
/// it first, if that is another broker.
pub async fn answer(
    shared: &Shared,
    path: &str,
    request: Request,
    home: Option<Box<str>>,
    (requester, next): (Requester, Next),
) -> Response {
    let is_for_one = request.extensions().get::<PassedOn>().is_some()
        || request.headers().contains_key(BROKER)
        || shared.cluster.is_none();
    let list = LISTS.iter().find(|(known, _)| *known == path).map(|(_, list)| *list);
    let until = Instant::now() + TOGETHER_WITHIN;
    let asking = Asking { shared, requester, next, until };
    match list.filter(|_| request.method() == Method::GET && !is_for_one) {
        Some(list) => asking.all(list, request).await,
        None if OF_SESSION.contains(&path) && !is_for_one => {
            asking.until_found(request, home).await
        }
        None => asking.one(request, home.as_deref()).await,
    }
}

struct Asking<'a> {
    shared: &'a Shared,
    requester: Requester,
    next: Next,
    /// Until when other brokers are asked together.
    until: Instant,
}

impl Asking<'_> {
    /// Asks this broker, or another one.
    async fn one(&self, mut request: Request, broker: Option<&str>) -> Response {
        let Some(broker) = broker else {
            request.extensions_mut().insert(self.requester.clone());
            return self.next.clone().run(request).await;
        };
        let to = (Protocol::Admin, SocketAddr::from(([127, 0, 0, 1], 0)));
        passing_on::to_home(self.shared, broker.into(), to, request).await
    }

    /// Asks one of several brokers. Returns `None` if it is not up, or does not answer soon.
    async fn one_of_several(&self, parts: &Parts, broker: &str, is_up: bool) -> Option<Response> {
        if !is_up {
            return None;
        }
        let left = self.until.saturating_duration_since(Instant::now());
        timeout(left.min(EACH_WITHIN), self.one(copy(parts), Some(broker))).await.ok()
    }

    /// Asks the broker that should have a session, and then the others until one has it.
    async fn until_found(&self, request: Request, home: Option<Box<str>>) -> Response {
        let (parts, _) = request.into_parts();
        let first = match home.as_deref() {
            None => self.one(copy(&parts), None).await,
            Some(home) => {
                let answer = timeout(EACH_WITHIN, self.one(copy(&parts), Some(home))).await;
                answer.unwrap_or_else(|_| may_have_it(home))
            }
        };
        let may_be_elsewhere = [StatusCode::NOT_FOUND, StatusCode::SERVICE_UNAVAILABLE];
        if !may_be_elsewhere.contains(&first.status()) {
            return first;
        }
        let mut why = first;
        for (broker, is_up) in
            self.others().into_iter().filter(|(it, _)| home.as_deref() != Some(&**it))
        {
            let answer = self.one_of_several(&parts, &broker, is_up).await;
            let answer = answer.unwrap_or_else(|| may_have_it(&broker));
            if answer.status().is_success() {
                return answer;
            }
            // That nobody has it is certain only if all say so.
            if why.status() == StatusCode::NOT_FOUND {
                why = answer;
            }
        }
        why
    }

    /// Asks all brokers, and merges their lists.
    async fn all(&self, list: List, request: Request) -> Response {
        let (parts, _) = request.into_parts();
        let own = self.one(copy(&parts), None).await;
        let mut merged = Merged::new(list, limit_of(&parts).unwrap_or(list.limit));
        let mut missing = None;
        let status = own.status();
        match status {
            StatusCode::OK => match list.read(own, usize::MAX).await {
                Some(page) => merged.add(self.name(), page),
                None => return Refusal::unavailable("the list is incomplete").into_response(),
            },
            // It may know nothing of the tenant yet.
            StatusCode::NOT_FOUND => missing = Some(own),
            _ => return own,
        }
        let mut silent = if list.of_slots { self.with_slots_out() } else { Vec::new() };
        for (broker, is_up) in self.others() {
            let (status, page) = match self.one_of_several(&parts, &broker, is_up).await {
                Some(answer) => {
                    let status = answer.status();
                    (status, list.read(answer, PAGE_MAX).await)
                }
                None => (StatusCode::SERVICE_UNAVAILABLE, None),
            };
            match (status, page) {
                (StatusCode::OK, Some(page)) => {
                    missing = None;
                    merged.add(&broker, page);
                }
                (StatusCode::NOT_FOUND, _) => {}
                _ => silent.push(broker),
            }
        }
        // What another broker answers to may be less confined there.
        merged.confine(self.requester.tenant());
        match (missing, silent.first()) {
            (None, _) => Json(merged.into_page(&silent)).into_response(),
            (Some(missing), None) => missing,
            (Some(_), Some(broker)) => may_have_it(broker),
        }
    }

    fn name(&self) -> &str {
        self.shared.cluster.as_ref().map_or("", |cluster| cluster.name())
    }

    fn with_slots_out(&self) -> Vec<String> {
        self.shared.cluster.as_ref().map_or_else(Vec::new, |cluster| cluster.with_slots_out())
    }

    fn others(&self) -> Vec<(String, bool)> {
        self.shared.cluster.as_ref().map_or_else(Vec::new, |cluster| cluster.in_cluster())
    }
}

/// Refuses a request, because a broker that may have what it is about has not answered.
fn may_have_it(broker: &str) -> Response {
    let sentence = format!("the broker {broker}, which may have it, has not answered");
    Refusal::unavailable(sentence).into_response()
}

/// Returns the request with these parts, and no body.
fn copy(parts: &Parts) -> Request {
    let mut request = Request::from_parts(parts.clone(), Body::empty());
    request.headers_mut().remove(CONTENT_LENGTH);
    request
}

impl List {
    /// Reads a page.
    async fn read(&self, response: Response, most: usize) -> Option<Map<String, Value>> {
        let body = to_bytes(response.into_body(), most).await.ok()?;
        let answer: Map<String, Value> = serde_json::from_slice(&body).ok()?;
        Some(match self.is_one {
            true => Map::from_iter([(self.name.to_owned(), json!([answer]))]),
            false => answer,
        })
    }
}

/// Returns the limit in a request.
fn limit_of(parts: &Parts) -> Option<usize> {
    let text = |text| percent_decode_str(text).decode_utf8().ok();
    let query = parts.uri.query().unwrap_or_default();
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, limit) = pairs.find(|(name, _)| text(name).is_some_and(|name| name == "limit"))?;
    text(limit)?.parse().ok()
}

/// The first items of the lists of several brokers.
struct Merged {
    list: List,
    limit: usize,
    /// Those at each place. No place is divided between pages: a page begins behind a place.
    items: BTreeMap<Place, Vec<Value>>,
    are_more: bool,
}

impl Merged {
    fn new(list: List, limit: usize) -> Self {
        Self { list, limit, items: BTreeMap::new(), are_more: false }
    }

    /// Adds the first items of a broker's list: as many as the limit, or all.
    fn add(&mut self, broker: &str, mut page: Map<String, Value>) {
        self.are_more |= page.get("next").is_some_and(|next| !next.is_null());
        let items = page.get_mut(self.list.name).and_then(Value::as_array_mut);
        for mut item in items.map(std::mem::take).unwrap_or_default() {
            let at_place = self.items.entry((self.list.place)(&item)).or_default();
            match at_place.first_mut().filter(|_| self.list.are_joined) {
                Some(known) => join(known, &item),
                None => {
                    if !self.list.are_joined {
                        item["broker"] = broker.into();
                    }
                    at_place.push(item);
                }
            }
            if self.items.len() > self.limit {
                self.items.pop_last();
                self.are_more = true;
            }
        }
    }

    /// Removes what is of other tenants, if the items are tenants.
    fn confine(&mut self, tenant: Option<&str>) {
        if let Some(tenant) = tenant.filter(|_| self.list.are_joined) {
            self.items.retain(|place, _| *place == Place::Named(tenant.into()));
        }
    }

    /// Returns the answer. `silent`: the brokers that have not answered.
    fn into_page(self, silent: &[String]) -> Value {
        let last = self.items.last_key_value().filter(|_| self.are_more);
        let next = last.map_or(Value::Null, |(place, _)| place.next());
        let mut items = self.items.into_values().flatten();
        if self.list.is_one {
            let mut item = items.next().unwrap_or_default();
            item["not_answered"] = silent.into();
            return item;
        }
        let items: Vec<_> = items.collect();
        json!({ self.list.name: items, "next": next, "not_answered": silent })
    }
}

/// Adds what another broker has of a tenant to what is known of it. What all brokers have stays as it is.
fn join(known: &mut Value, other: &Value) {
    let Some(known) = known.as_object_mut() else { return };
    for (name, value) in known.iter_mut() {
        match name.as_str() {
            "sessions" | "connections" | "refused" | "throttled_seconds" => {
                add(value, &other[name])
            }
            "rates" => {
                for (name, rate) in value.as_object_mut().into_iter().flatten() {
                    add(rate, &other["rates"][name]);
                }
            }
            "quotas" => {
                for (name, quota) in value.as_object_mut().into_iter().flatten() {
                    join(quota, &other["quotas"][name]);
                }
            }
            _ => {}
        }
    }
    // What only the other one has.
    for of in ["rates", "quotas"] {
        match (known.get_mut(of), &other[of]) {
            (Some(Value::Object(known)), Value::Object(other)) => {
                for (name, value) in other {
                    known.entry(name).or_insert_with(|| value.clone());
                }
            }
            (Some(known @ Value::Null), other) => *known = other.clone(),
            _ => {}
        }
    }
}

/// Adds a number to another one.
fn add(to: &mut Value, other: &Value) {
    *to = match (to.as_u64(), other.as_u64()) {
        (Some(one), Some(other)) => (one + other).into(),
        _ => match (to.as_f64(), other.as_f64()) {
            (Some(one), Some(other)) => (one + other).into(),
            (Some(_), None) => return,
            (None, _) => other.clone(),
        },
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(name: &str) -> List {
        LISTS
            .into_iter()
            .map(|(_, list)| list)
            .find(|list| list.name == name && !list.is_one)
            .unwrap()
    }

    fn merge(name: &str, limit: usize, pages: &[(&str, Value)]) -> Value {
        let mut merged = Merged::new(list(name), limit);
        for (broker, page) in pages {
            merged.add(broker, page.as_object().unwrap().clone());
        }
        merged.into_page(&[])
    }

    fn mqtt(client: &str) -> Value {
        json!({ "client": client, "protocol": "MQTT", "connection": 7 })
    }

    fn amqp(number: u64) -> Value {
        json!({ "client": "container", "protocol": "AMQP", "connection": number })
    }

    #[test]
    fn pages_are_merged_in_the_order_of_the_list() {
        let pages = [
            ("b1", json!({ "clients": [mqtt("a"), mqtt("d"), amqp(2)], "next": null })),
            ("b2", json!({ "clients": [mqtt("b"), mqtt("c"), amqp(1)], "next": null })),
        ];
        let all = merge("clients", 100, &pages);
        let found = |page: &Value| -> Vec<String> {
            let all = page["clients"].as_array().unwrap();
            all.iter().map(|one| format!("{} {}", of_client(one).next(), one["broker"])).collect()
        };
        let expected = [
            r#""mqtt/a" "b1""#,
            r#""mqtt/b" "b2""#,
            r#""mqtt/c" "b2""#,
            r#""mqtt/d" "b1""#,
            r#""amqp/1" "b2""#,
            r#""amqp/2" "b1""#,
        ];
        assert_eq!(
            (found(&all), &all["next"]),
            (expected.map(String::from).to_vec(), &Value::Null)
        );
        let first = merge("clients", 5, &pages);
        assert_eq!(
            (found(&first), &first["next"]),
            (expected[..5].iter().map(|it| (*it).into()).collect(), &json!("amqp/1"))
        );
    }

    #[test]
    fn a_page_that_is_cut_says_where_the_next_one_begins() {
        let pages = [
            ("b1", json!({ "sessions": [{ "client": "a" }, { "client": "c" }], "next": "c" })),
            ("b2", json!({ "sessions": [{ "client": "b" }], "next": null })),
        ];
        let first = merge("sessions", 2, &pages);
        assert_eq!(first["sessions"].as_array().unwrap().len(), 2);
        assert_eq!(first["next"], "b");
    }

    #[test]
    fn two_of_one_name_are_on_one_page() {
        let page = || json!({ "sessions": [{ "client": "a" }, { "client": "b" }], "next": null });
        let first = merge("sessions", 1, &[("b1", page()), ("b2", page())]);
        let of = |broker| json!({ "client": "a", "broker": broker });
        assert_eq!(first["sessions"], json!([of("b1"), of("b2")]));
        assert_eq!(first["next"], "a");
    }

    #[test]
    fn what_brokers_have_of_a_tenant_is_added() {
        let page = |sessions: u64, rates: Value, quotas: Value| {
            json!({
                "tenants": [{
                    "name": "acme", "sessions": sessions, "connections": 1, "retained_messages": 5,
                    "rates": rates, "quotas": quotas,
                }],
                "next": null,
            })
        };
        let quota = |refused: u64| json!({ "limit": 9, "used": 3, "refused": refused, "throttled_seconds": null });
        let (one, other) = (
            json!({ "max_sessions": quota(1) }),
            json!({ "max_sessions": quota(2), "max_qos": quota(4) }),
        );
        let pages = [
            ("b1", page(2, Value::Null, one)),
            ("b2", page(3, json!({ "messages_in": 1.5 }), other)),
        ];
        let expected = json!([{
            "name": "acme", "sessions": 5, "connections": 2, "retained_messages": 5,
            "rates": { "messages_in": 1.5 },
            "quotas": { "max_sessions": quota(3), "max_qos": quota(4) },
        }]);
        assert_eq!(merge("tenants", usize::MAX, &pages)["tenants"], expected);
    }
}
