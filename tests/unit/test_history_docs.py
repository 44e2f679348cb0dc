"""Every column that an analyst can see is explained, and no other."""

import pkgutil
import re
from dataclasses import fields

import pytest

from embed_pipeline import history
from embed_pipeline.defs.drains import DrainConfig
from embed_pipeline.domain.coverage import CoverageReport
from embed_pipeline.domain.figures import coverage_figures, queue_figures
from embed_pipeline.domain.quality import Auc, Quality
from embed_pipeline.domain.quality_check import overall_figures
from embed_pipeline.history.failed import Kind
from embed_pipeline.history.similar import COLUMNS as SIMILARITIES
from embed_pipeline.history.tables import DRAIN_COLUMNS
from embed_pipeline.worker.report import DrainReport
from tests.support.project import ROOT
from tests.unit.test_domain_figures import BUSY, PAID

MEASURED = Quality("model", Auc(0.8, 0.7, 0.9, edges=400), drift=1.0)
COLUMNS = {
    "queue_metrics": {*queue_figures(BUSY), *overall_figures(MEASURED)},
    "coverage": {*coverage_figures(CoverageReport(PAID))},
    "drains": {
        *DrainReport("owner", PAID).as_dict(),
        *(f"config_{name}" for name in DrainConfig.model_fields),
        "run_id",
    },
    "failures": {field.name for field in fields(Kind)},
    "similarities": {*SIMILARITIES},
}


@pytest.mark.parametrize("table", COLUMNS)
def test_the_columns_of_a_table_are_those_in_the_docs(table: str) -> None:
    text = (ROOT / "docs" / "history.md").read_text(encoding="utf-8")
    [section] = re.findall(rf"^## {table}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    documented = re.findall(r"^\| `(\w+)` \| [^|]+ \| [^|]+\. \|$", section, re.MULTILINE)

    assert set(documented) == COLUMNS[table]
    assert len(documented) == len(set(documented))


def test_drains_have_every_column_that_is_documented() -> None:
    assert set(DRAIN_COLUMNS) == COLUMNS["drains"]


def test_no_table_is_hidden_by_a_module_of_its_name() -> None:
    modules = {module.name for module in pkgutil.iter_modules(history.__path__)}

    assert modules & set(history.__all__) == {"capacity"}
