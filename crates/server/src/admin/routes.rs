//! The paths of the API with what answers them, and the two lists of them: one for people, one for programs.

use std::sync::LazyLock;
use std::thread;

use axum::Router;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{
    Served, access, amqp_connections, backup, broker, clients, cluster, dashboard, denials, drops,
    entities, events, health, history, logins, managed, observed, openapi, publish, receivers,
    retained, sessions, shards, state, tenants, trace, users,
};

/// The lists, which are made when one is first asked for, by a thread of its own: it takes some megabytes for a moment, and the
/// memory of a thread that has ended is given back.
static LISTS: LazyLock<Lists> = LazyLock::new(|| {
    thread::spawn(Lists::make).join().expect("what is made does not depend on anything")
});

/// The routes, which are made once for the same reason.
static ROUTES: LazyLock<Router<Served>> = LazyLock::new(|| {
    thread::spawn(|| described().into()).join().expect("what is made does not depend on anything")
});

struct Lists {
    index: String,
    document: String,
}

impl Lists {
    fn make() -> Self {
        let api = described().into_openapi();
        let document = serde_json::to_string(&openapi::document(&api));
        Self { index: openapi::index(&api), document: document.expect("its keys are text") }
    }
}

/// Returns all routes, before it is checked who may use them.
pub fn all() -> Router<Served> {
    ROUTES
        .clone()
        .route("/", get(index))
        .route("/v1/openapi.json", get(document))
        .route("/dashboard", get(async || Redirect::to("/dashboard/")))
        .route("/dashboard/", get(dashboard::page))
        .route("/dashboard/{*file}", get(dashboard::part))
}

/// Returns the routes that programs use, with their descriptions.
fn described() -> OpenApiRouter<Served> {
    OpenApiRouter::default()
        .routes(routes!(health::alive))
        .routes(routes!(health::health))
        .routes(routes!(super::metrics))
        .routes(routes!(access::show))
        .routes(routes!(broker::show))
        .routes(routes!(history::show))
        .routes(routes!(events::stream))
        .routes(routes!(tenants::list))
        .merge(managed::routes())
        .routes(routes!(logins::changed))
        .routes(routes!(sessions::list))
        .routes(routes!(sessions::show, sessions::end))
        .routes(routes!(clients::list))
        .routes(routes!(clients::show, clients::disconnect))
        .routes(routes!(trace::stream))
        .routes(routes!(receivers::show))
        .routes(routes!(retained::list))
        .routes(routes!(retained::show, retained::remove))
        .routes(routes!(observed::stream))
        .routes(routes!(publish::post))
        .routes(routes!(logins::show))
        .routes(routes!(users::show))
        .routes(routes!(drops::list))
        .routes(routes!(denials::list))
        .routes(routes!(amqp_connections::list))
        .routes(routes!(amqp_connections::close))
        .routes(routes!(state::list))
        .routes(routes!(state::show))
        .merge(entities::routes())
        .routes(routes!(cluster::show))
        .routes(routes!(cluster::slots))
        .routes(routes!(cluster::move_slot))
        .routes(routes!(cluster::routes))
        .routes(routes!(shards::list))
        .routes(routes!(shards::show, shards::patch))
        .routes(routes!(backup::stream))
}

/// Lists the operations for people. Browsers get the dashboard.
async fn index(headers: HeaderMap) -> Response {
    dashboard::for_browsers(&headers, &*LISTS.index)
}

/// Describes the API in the format of OpenAPI.
async fn document() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], &*LISTS.document)
}
