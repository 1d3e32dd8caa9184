//! `…/subscriptions/{subscription}/rules`: rules of a subscription.

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use barid_core::rules::same_name;
use barid_engine::entities::{RuleDefinition, RuleProperties};
use serde::Serialize;
use utoipa::ToSchema;

use super::described::DescribedRule;
use super::subscriptions::Named;
use crate::admin::Served;
use crate::admin::answer::{Answer, Refusal};
use crate::admin::body;
use crate::admin::changing::{change, made, only_new};

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RuleList)]
pub struct All {
    rules: Vec<DescribedRule>,
}

type RulePath = Result<Path<(String, String, String, String)>, PathRejection>;

/// Lists the rules of a subscription.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/topics/{topic}/subscriptions/{subscription}/rules", operation_id = "list_rules",
    responses((status = 200, body = All))
)]
pub async fn list(
    State(served): State<Served>,
    path: Result<Path<(String, String, String)>, PathRejection>,
) -> Answer<All> {
    let Path((tenant, topic, subscription)) = path?;
    let named = Named::find(&served, &tenant, &topic, &subscription)?;
    let described = |rule| DescribedRule::of(rule, &named.queue);
    Ok(Json(All { rules: named.definition().rules.iter().map(described).collect() }))
}

/// Shows a rule.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/topics/{topic}/subscriptions/{subscription}/rules/{rule}", operation_id = "show_rule",
    responses((status = 200, body = DescribedRule))
)]
pub async fn show(State(served): State<Served>, path: RulePath) -> Answer<DescribedRule> {
    let (named, name) = named(&served, path)?;
    let definition = named.definition();
    let rule = definition.rules.iter().find(|rule| same_name(&rule.name, &name));
    Ok(Json(DescribedRule::of(rule.ok_or_else(|| no_rule(&name))?, &named.queue)))
}

/// Creates or replaces a rule.
#[utoipa::path(
    put, path = "/v1/tenants/{tenant}/topics/{topic}/subscriptions/{subscription}/rules/{rule}", operation_id = "put_rule",
    request_body = Option<RuleProperties>,
    responses((status = 201, body = DescribedRule), (status = 200, body = DescribedRule))
)]
pub async fn put(
    State(served): State<Served>,
    path: RulePath,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<DescribedRule>), Refusal> {
    let (named, name) = named(&served, path)?;
    let mut rule = RuleDefinition { name, properties: body::properties(&body)? };
    let mut definition = named.definition();
    let known = definition.rules.iter_mut().find(|known| same_name(&known.name, &rule.name));
    let is_new = known.is_none();
    match known {
        Some(_) if only_new(&headers) => {
            return Err(Refusal::exists(format!("there is a rule {:?} already", rule.name)));
        }
        Some(known) => {
            rule.name.clone_from(&known.name);
            *known = rule.clone();
            change(&served, |commits| named.update(&definition, commits)).await?;
        }
        None => {
            let add =
                |commits: &mut _| Ok(named.entities.add_rule(&named.queue, &rule, commits)?);
            change(&served, add).await?;
        }
    }
    Ok((made(is_new), Json(DescribedRule::of(&rule, &named.queue))))
}

/// Removes a rule.
#[utoipa::path(
    delete, path = "/v1/tenants/{tenant}/topics/{topic}/subscriptions/{subscription}/rules/{rule}", operation_id = "delete_rule",
    responses((status = 204))
)]
pub async fn delete(State(served): State<Served>, path: RulePath) -> Result<StatusCode, Refusal> {
    let (named, name) = named(&served, path)?;
    let remove = |commits: &mut _| Ok(named.entities.remove_rule(&named.queue, &name, commits)?);
    change(&served, remove).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the subscription that a path names, and the name of the rule.
fn named(served: &Served, path: RulePath) -> Result<(Named, String), Refusal> {
    let Path((tenant, topic, subscription, rule)) = path?;
    Ok((Named::find(served, &tenant, &topic, &subscription)?, rule))
}

fn no_rule(name: &str) -> Refusal {
    Refusal::not_found(format!("the subscription has no rule {name:?}"))
}
