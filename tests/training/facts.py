"""Questions on made-up facts that a tiny model can learn to answer, and word overlap cannot."""

import json
import random
from pathlib import Path


NAMES = [f"{family}{given}" for family in "王李张刘陈" for given in ("伟", "芳", "小明", "秀英", "建国", "文")]
PLACES = ["北京", "上海", "广州", "杭州", "哈尔滨", "呼和浩特"]
FIRMS = ["医院", "学校", "大学食堂", "出租车公司", "市图书馆"]
JOBS = ["医生", "教师", "厨师", "司机", "程序员", "图书管理员"]


def make_rows(count: int, seed: int = 0, impossible: int = 0) -> list[dict]:
    """`count` rows in the Hub's format: where is someone from? The context also says where they work, and as what.

    Args:
        impossible: Every so many contexts do not say where someone is from; 0: all do.
    """
    rng = random.Random(seed)
    rows = []
    for index in range(count):
        name, home = rng.choice(NAMES), rng.choice(PLACES)
        facts = [f"是一名{rng.choice(JOBS)}", f"工作的地方是{rng.choice(FIRMS)}"]
        is_impossible = impossible and index % impossible == 0
        if not is_impossible:
            facts.append(f"出生于{home}")
        rng.shuffle(facts)
        context = f"{name}{'，'.join(facts)}。"
        at = context.find("出生于") + len("出生于")
        answers = {"text": [], "answer_start": []} if is_impossible else {"text": [home], "answer_start": [at]}
        rows.append({"id": f"q{index}", "question": f"{name}是哪里人？", "context": context, "answers": answers})
    return rows


def nest(rows: list[dict]) -> dict:
    """The same as SQuAD's nested JSON."""
    paragraphs = [
        {
            "context": row["context"],
            "qas": [
                {
                    "id": row["id"],
                    "question": row["question"],
                    "answers": [
                        {"text": text, "answer_start": start}
                        for text, start in zip(row["answers"]["text"], row["answers"]["answer_start"], strict=True)
                    ],
                }
            ],
        }
        for row in rows
    ]
    return {"version": "v1.1", "data": [{"title": "", "paragraphs": paragraphs}]}


def write_jsonl(path: Path, rows: list[dict]) -> Path:
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n", encoding="utf-8")
    return path
