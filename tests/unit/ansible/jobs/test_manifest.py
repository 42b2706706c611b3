"""The Job and the Secret of a run."""

from __future__ import annotations

from datetime import timedelta

from operator_runner.ansible.jobs.manifest import (
    STATE_ANNOTATION,
    UID_LABEL,
    JobRun,
    job,
    job_name,
    resources_of,
    secret,
    template_digest,
)
from operator_runner.core.model import GVK, JobTemplate, ObjectRef

REF = ObjectRef(GVK("shop.io", "v1", "Web"), "shop", "a.b_" + "long-" * 60)
SAME_KIND = [GVK("shop.io", "v2", "Web"), GVK("other.io", "v1", "Web")]
RUN = JobRun(REF, "uid-1", "0123456789abcdef", "state", timedelta(minutes=5))


def test_names_are_dns_labels_for_any_name_of_a_resource() -> None:
    """The name of a Job is a label of its Pods, so it has at most 63 characters."""
    name = job_name(REF, RUN.run_id)
    assert name.startswith("web-a-b-long-")
    assert name.endswith("-0123456789abcdef")
    assert len(name) <= 63
    assert name == job_name(REF, RUN.run_id).lower()


def test_a_job_has_one_attempt_and_a_deadline_after_that_of_the_run() -> None:
    """Retries are up to the workqueue; labels and annotations identify the run."""
    body = job(RUN, JobTemplate("ee"))
    spec = body["spec"]
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"]) == (0, 360)
    assert spec["ttlSecondsAfterFinished"] == 300
    assert body["metadata"]["labels"][UID_LABEL] == "uid-1"
    assert body["metadata"]["annotations"][STATE_ANNOTATION] == "state"
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    assert (
        "activeDeadlineSeconds"
        not in job(JobRun(REF, "u", "1", "s", None), JobTemplate("e"))["spec"]
    )


def test_the_resource_of_a_job_is_found_by_its_kind() -> None:
    """The name is not checked here, so it may have any form; other Jobs have none."""
    body, others = job(RUN, JobTemplate("ee")), [GVK("shop.io", "v1", "Other"), *SAME_KIND]
    assert resources_of(body, [*others, REF.gvk]) == [REF]
    assert resources_of(body, others) == []
    node = ObjectRef(GVK("", "v1", "Node"), "", "a")
    of_node = job(JobRun(node, "u", "1", "s", None), JobTemplate("ee"))
    assert resources_of(of_node, [node.gvk]) == [node]
    # As earlier versions of the operator wrote it.
    del body["metadata"]["annotations"]["operator-runner.dev/resource-api-version"]
    assert {each.gvk for each in resources_of(body, [*others, REF.gvk])} == {*SAME_KIND, REF.gvk}
    del body["metadata"]["annotations"]
    assert resources_of(body, [REF.gvk]) == []


def test_settings_of_the_template_are_merged_with_those_of_the_run() -> None:
    """Other containers, volumes and settings of the container stay; its command is the runner's."""
    template = JobTemplate(
        "ee",
        service_account_name="puller",
        node_selector={"disk": "fast"},
        tolerations=({"key": "gpu"},),
        volumes=({"name": "data", "emptyDir": {}},),
        volume_mounts=({"name": "data", "mountPath": "/data"},),
        resources={"limits": {"memory": "1Gi"}},
        pod={
            "metadata": {"labels": {"team": "a", UID_LABEL: "other"}},
            "spec": {
                "restartPolicy": "Always",
                "nodeSelector": {"zone": "b"},
                "containers": [
                    {"name": "other", "image": "x"},
                    {"name": "run", "command": ["sh"], "env": [{"name": "A", "value": "1"}]},
                ],
            },
        },
    )
    pod = job(RUN, template)["spec"]["template"]
    assert pod["metadata"]["labels"]["team"] == "a"
    assert pod["metadata"]["labels"][UID_LABEL] == "uid-1"
    spec = pod["spec"]
    assert spec["restartPolicy"] == "Never"
    assert spec["automountServiceAccountToken"] is False
    assert spec["serviceAccountName"] == "puller"
    assert spec["nodeSelector"] == {"zone": "b", "disk": "fast"}
    assert spec["tolerations"] == [{"key": "gpu"}]
    assert spec["volumes"][0]["name"] == "data"
    container, other = spec["containers"]
    assert other["name"] == "other"
    assert (container["image"], container["command"][0]) == ("ee", "python3")
    assert container["env"] == [{"name": "A", "value": "1"}]
    assert container["resources"] == {"limits": {"memory": "1Gi"}}
    assert container["volumeMounts"][0]["mountPath"] == "/data"


def test_a_template_is_not_changed() -> None:
    """It is used for the next run too, and has the same digest."""
    template = JobTemplate("ee", pod={"spec": {"containers": [{"name": "run"}]}})
    digest = template_digest(template)
    job(RUN, template)
    assert template_digest(template) == digest
    assert template_digest(JobTemplate("other")) != digest


def test_a_secret_is_deleted_with_its_job() -> None:
    """It has the name of the Job, which owns it."""
    body = job(RUN, JobTemplate("ee"))
    body["metadata"]["uid"] = "job-uid"
    made = secret(body, {"token": b"abc"})
    assert made["metadata"]["name"] == body["metadata"]["name"]
    assert made["metadata"]["ownerReferences"][0]["uid"] == "job-uid"
    assert made["data"] == {"token": "YWJj"}
