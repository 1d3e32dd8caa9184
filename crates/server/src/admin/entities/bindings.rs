//! `/v1/tenants/{tenant}/bindings`: bindings between MQTT topics and entities.

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use barid_engine::bindings::Binding;
use barid_engine::bindings::Bound;
use barid_engine::tenant::Tenant;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::described::declared_by;
use super::{Cut, Paging, any_tenant};
use crate::admin::answer::{Answer, Refusal};
use crate::admin::body;
use crate::admin::changing::{change, made, only_new};
use crate::admin::{Served, tenants};

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BindingList)]
pub struct Page {
    bindings: Vec<Described>,
    next: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DescribedBinding)]
pub struct Described {
    #[serde(flatten)]
    binding: Binding,
    /// `configuration` or `admin`: who may change it.
    declared_by: &'static str,
    /// Messages that were handed on.
    passed: u64,
    /// Messages that the entity or the publisher's limits have refused.
    refused: u64,
    /// The reason why the binding carries no messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<&'static str>,
}

type BindingPath = Result<Path<(String, String)>, PathRejection>;

/// Lists the bindings between MQTT topics and entities.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/bindings", operation_id = "list_bindings",
    params(Paging),
    responses((status = 200, body = Page))
)]
pub async fn list(
    State(served): State<Served>,
    path: Result<Path<String>, PathRejection>,
    question: Result<Query<Paging>, QueryRejection>,
) -> Answer<Page> {
    let (Path(tenant), paging) = (path?, Paging::of(question)?);
    let tenant = tenants::named(&served, &tenant)?;
    let all = tenant.bindings.all();
    let after = paging.after.as_deref();
    let behind = all.iter().filter(|bound| after.is_none_or(|after| bound.name() > after));
    let Cut { found, next } = paging.cut(behind, |bound| bound.name().into());
    let described = found.into_iter().map(|bound| Described::of(bound, &tenant));
    Ok(Json(Page { bindings: described.collect(), next }))
}

/// Shows a binding.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/bindings/{binding}", operation_id = "show_binding",
    responses((status = 200, body = Described))
)]
pub async fn show(State(served): State<Served>, path: BindingPath) -> Answer<Described> {
    let Path((tenant, name)) = path?;
    let tenant = tenants::named(&served, &tenant)?;
    let missing =
        || Refusal::not_found(format!("the tenant {:?} has no binding {name:?}", &*tenant.name));
    let bound = tenant.bindings.get(&name).ok_or_else(missing)?;
    Ok(Json(Described::of(&bound, &tenant)))
}

/// Creates or replaces a binding.
#[utoipa::path(
    put, path = "/v1/tenants/{tenant}/bindings/{binding}", operation_id = "put_binding",
    request_body = Binding,
    responses((status = 201, body = Described), (status = 200, body = Described))
)]
pub async fn put(
    State(served): State<Served>,
    path: BindingPath,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<Described>), Refusal> {
    let Path((tenant, name)) = path?;
    let binding = read(&body, &tenant, &name)?;
    let tenant = any_tenant(&served, &tenant)?;
    if tenant.bindings.get(&name).is_some() && only_new(&headers) {
        return Err(Refusal::exists(format!("there is a binding {name:?} already")));
    }
    let set = |commits: &mut _| {
        let is_new = tenant.bindings.set(&tenant, &binding, commits)?;
        served.lanes.changed(&tenant);
        Ok(is_new)
    };
    let is_new = change(&served, set).await?;
    let bound = tenant
        .bindings
        .get(&name)
        .ok_or_else(|| Refusal::conflict("the binding was deleted during the request"))?;
    Ok((made(is_new), Json(Described::of(&bound, &tenant))))
}

/// Removes a binding.
#[utoipa::path(
    delete, path = "/v1/tenants/{tenant}/bindings/{binding}", operation_id = "delete_binding",
    responses((status = 204))
)]
pub async fn delete(
    State(served): State<Served>,
    path: BindingPath,
) -> Result<StatusCode, Refusal> {
    let Path((tenant, name)) = path?;
    let tenant = tenants::named(&served, &tenant)?;
    let delete = |commits: &mut _| {
        tenant.bindings.delete(&tenant, &name, commits)?;
        served.lanes.changed(&tenant);
        Ok(())
    };
    change(&served, delete).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Reads a binding. Its tenant and its name are those in the path.
fn read(body: &[u8], tenant: &str, name: &str) -> Result<Binding, Refusal> {
    let mut members: Map<String, Value> = body::properties(body)?;
    for told in ["declared_by", "passed", "refused", "problem"] {
        members.remove(told);
    }
    for (key, value) in [("tenant", tenant), ("name", name)] {
        let other = members.insert(key.into(), value.into());
        if other.is_some_and(|other| other != value) {
            let sentence =
                format!("`{key}` in the body differs from the path, which has {value:?}");
            return Err(Refusal::bad_request(sentence));
        }
    }
    serde_json::from_value(members.into()).map_err(|error| Refusal::bad_request(error.to_string()))
}

impl Described {
    fn of(bound: &Bound, tenant: &Tenant) -> Self {
        Self {
            binding: bound.binding.clone(),
            declared_by: declared_by(bound.declared_by),
            passed: bound.counts.passed(),
            refused: bound.counts.refused(),
            problem: bound.node(tenant.used_entities()).err(),
        }
    }
}
