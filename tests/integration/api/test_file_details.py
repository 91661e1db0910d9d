"""The small print of files: how long a list is, what gone means, what a name may do to a header."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.api.conftest import MODEL, Api
from tests.integration.api.rows import Worker, finish, row_of, run, store
from tests.integration.api.test_files import FORM, LINES, PURPOSE, form


def test_a_list_has_ten_thousand_files_unless_asked_otherwise(api: Api, worker: Worker) -> None:
    api.client().files.create(file=LINES, purpose="batch")
    worker.execute(
        "INSERT INTO file (tenant_id, project_id, public_id, filename, purpose, is_complete)"
        " SELECT tenant_id, project_id, 'file-' || md5(n::text), 'n', 'vision', true FROM file, generate_series(1, 10000) n"
    )
    http = api.http()

    first = http.get("/v1/files").json()
    second = http.get(f"/v1/files?after={first['last_id']}").json()

    assert (len(first["data"]), first["has_more"]) == (10_000, True)
    assert (len(second["data"]), second["has_more"]) == (1, False)
    assert len(http.get("/v1/files?limit=10000&purpose=vision").json()["data"]) == 10_000
    assert len(http.get("/v1/files?limit=1").json()["data"]) == 1
    assert [http.get(f"/v1/files?limit={n}").status_code for n in (0, 10_001)] == [400, 400]


@pytest.mark.parametrize(
    "gone", ["UPDATE file SET expires_at = now()", "UPDATE file SET deleted_at = now()"], ids=["expired", "deleted"]
)
def test_what_is_gone_is_404_everywhere(api: Api, worker: Worker, gone: str) -> None:
    client, http = api.client(), api.http()
    file = client.files.create(file=LINES, purpose="batch")
    batch = client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", metadata={"model": MODEL}
    )
    row = row_of(worker, batch.id)
    run(worker, row, 1)
    store(worker, row, 1, b"{}\n")
    finish(worker, row, {0: {1: b"{}\n"}})
    output = client.batches.retrieve(batch.id).output_file_id
    listed = {one["id"]: one for one in http.get("/v1/files").json()["data"]}
    assert (listed[output]["purpose"], listed[output]["bytes"], listed[output]["status"]) == (
        "batch_output",
        3,
        "processed",
    )

    worker.execute(gone.encode())

    for name in (file.id, output):
        for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
            reply = http.request(method, f"/v1/files/{name}{path}", headers={"range": "bytes=0-1"})
            assert (reply.status_code, reply.json()["error"]["type"]) == (404, "invalid_request_error")
    assert http.get("/v1/files").json()["data"] == []
    again = http.post("/v1/batches", json=asking(file.id))
    assert worker.execute("SELECT file_id FROM batch WHERE public_id = %s", (again.json()["id"],)).fetchone() == (None,)


def asking(file_id: str) -> dict[str, Any]:
    return {"input_file_id": file_id, "endpoint": "/v1/chat/completions", "completion_window": "24h"}


NAMES = ["a%0D%0ASet-Cookie: x=1", 'a"; filename="b', "a;b=c", "\u202egnp.exe", "%22", "a\tb", "😀" * 300]


def test_a_name_stays_inside_of_its_header(api: Api, subtests: pytest.Subtests) -> None:
    http = api.http()
    for name in NAMES:
        with subtests.test(name[:20]):
            quoted = name.replace("\\", "\\\\").replace('"', '\\"')
            body = form(PURPOSE, (f'name="file"; filename="{quoted}"', "{}"))
            made = http.post("/v1/files", content=body, headers=FORM).json()

            reply = http.get(f"/v1/files/{made['id']}/content")

            shown = reply.headers["content-disposition"]
            assert shown.startswith("attachment; filename*=UTF-8''")
            assert not set(shown.removeprefix("attachment; filename*=UTF-8''")) & set("\"; \r\n\t'")
            assert "set-cookie" not in reply.headers
            assert reply.headers["content-type"] == "application/octet-stream"
            assert len(made["filename"]) <= 255
