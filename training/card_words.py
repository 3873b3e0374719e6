"""The words of the model card that are not in its templates, in both languages."""

import re


# What the tasks call things, and what a Chinese card calls them. Names of files and labels stay as they are.
CHINESE = {
    "rows": "数据",
    "metric": "指标",
    "this model": "本模型",
    "on held-out text, 15 % masked": "留出文本，遮住 15 %",
    "guessing by frequency": "按词频猜",
    "loss (nats per masked token)": "损失（奈特/掩码 token）",
    "masked tokens predicted right": "掩码 token 猜对的比例",
    "most frequent answer": "总答最常见的",
    "the most frequent class": "总答最常见的类别",
    "the most frequent set of labels": "总答最常见的标签组合",
    "the mean of the training rows": "训练数据的平均值",
    "TF-IDF + logistic regression": "TF-IDF + 逻辑回归",
    "TF-IDF + ridge regression": "TF-IDF + 岭回归",
    "a CRF": "CRF（条件随机场）",
    "TF-IDF sentence + overlap": "TF-IDF 选句 + 词重叠",
    "always no answer": "总答“无答案”",
    "accuracy": "准确率",
    "loss": "损失",
    "macro F1": "宏平均 F1",
    "micro F1": "微平均 F1",
    "macro_f1": "宏平均 F1",
    "micro_f1": "微平均 F1",
    "all labels right": "标签全对",
    "subset_accuracy": "标签全对",
    "pearson": "皮尔逊相关系数",
    "spearman": "斯皮尔曼相关系数",
    "mse": "均方误差",
    "entity F1": "实体 F1",
    "entity f1": "实体 F1",
    "entity precision": "实体精确率",
    "entity recall": "实体召回率",
    "precision": "精确率",
    "recall": "召回率",
    "exact match": "完全匹配",
    "exact_match": "完全匹配",
    "f1": "F1",
    "blank": "空白",
    "without a value": "没有值",
    "exact duplicates": "完全重复",
}
COMPARISON = re.compile(r"the model (beats|does NOT beat) (.+): (.+) (\S+) ([<=>]) (\S+)")


def translated(words: str, language: str) -> str:
    """Words of a result in the language of the card, "en" or "zh"; names that are no words of ours stay."""
    return CHINESE.get(words, words) if language == "zh" else words


def verdict_in(line: str, language: str) -> str:
    """A line of `training.tasks.comparison` in the language of the card."""
    match = COMPARISON.fullmatch(line)
    if language == "en" or match is None:
        return line
    beats, other, metric, ours, sign, theirs = match.groups()
    beaten = "优于" if beats == "beats" else "**没有**优于"
    return f"本模型{beaten}{translated(other, language)}：{translated(metric, language)} {ours} {sign} {theirs}"
