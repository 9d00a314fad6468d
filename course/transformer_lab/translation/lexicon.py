# ruff: noqa: E501  (a table row is one line)
"""The words of the course's own English-Chinese grammar, as tables.

Every table is plain text, one entry a line, so a new word is one new line. Columns are separated by
blanks (`_` stands for a blank inside an English entry); what the columns mean stands above each table.
The measure word of a Chinese noun is a column here because Chinese chooses it by the noun.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Noun:
    singular: str
    plural: str
    zh: str
    measure: str  # the Chinese measure word: 一 *只* 猫
    adjectives: tuple[str, ...] = ()  # those that may stand before it

    @property
    def shows_number(self) -> bool:
        """Not so sheep and fish: "which sheep" may be one or many, and Chinese would have to know."""
        return self.singular != self.plural


@dataclass(frozen=True)
class Mass:
    en: str
    zh: str
    containers: tuple[str, ...]  # "cup" for "a cup of tea"; may be empty


@dataclass(frozen=True)
class Verb:
    base: str
    third: str  # with he, she, it
    past: str
    ing: str
    zh: str
    tenses: str  # of h habitual, p past, f with a modal, g in progress, s a state
    objects: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    manners: tuple[str, ...] = ()

    @property
    def past_is_base(self) -> bool:
        """`read`, `put`: without a time phrase nobody could tell past from present."""
        return self.past == self.base


@dataclass(frozen=True)
class Adjective:
    en: str
    zh: str  # after the noun, 这本书很*贵*
    before: str  # before the noun, 一件*昂贵 的*大衣
    comparative: str = ""


def _rows(table: str) -> list[list[str]]:
    return [line.split() for line in table.strip().splitlines()]


def _text(word: str) -> str:
    return word.replace("_", " ")


# ------------------------------------------------------------------------------------------- nouns
# group: the adjectives that suit it, then its nouns as singular plural Chinese measure-word
_NOUN_TABLE = """
reading: new old thick interesting
book books 书 本
novel novels 小说 本
magazine magazines 杂志 本
dictionary dictionaries 词典 本
paper: new old
newspaper newspapers 报纸 份
map maps 地图 张
ticket tickets 票 张
words: long interesting
letter letters 信 封
poem poems 诗 首
song songs 歌 首
story stories 故事 个
shows: long interesting
movie movies 电影 部
match matches 比赛 场
pictures: old beautiful
picture pictures 画 张
photo photos 照片 张
pets: big small black white
cat cats 猫 只
dog dogs 狗 只
rabbit rabbits 兔子 只
bird birds 鸟 只
farm: big small black white
sheep sheep 羊 只
duck ducks 鸭子 只
chicken chickens 鸡 只
horse horses 马 匹
cow cows 牛 头
pig pigs 猪 头
water: big small
fish fish 鱼 条
wild: big small
snake snakes 蛇 条
tiger tigers 老虎 只
monkey monkeys 猴子 只
elephant elephants 大象 头
panda pandas 熊猫 只
clothes: new old red black white blue beautiful expensive cheap
skirt skirts 裙子 条
scarf scarves 围巾 条
shirt shirts 衬衫 件
coat coats 大衣 件
sweater sweaters 毛衣 件
worn: new old beautiful expensive cheap
hat hats 帽子 顶
watch watches 手表 块
vehicles: new old red black white blue expensive cheap
car cars 汽车 辆
bicycle bicycles 自行车 辆
truck trucks 卡车 辆
taxi taxis 出租车 辆
bus buses 公共汽车 辆
machines: new old expensive cheap
computer computers 电脑 台
television televisions 电视 台
radio radios 收音机 台
camera cameras 照相机 台
phone phones 手机 部
furniture: new old big small
table tables 桌子 张
bed beds 床 张
chair chairs 椅子 把
box boxes 盒子 个
tools: new old small
umbrella umbrellas 雨伞 把
knife knives 刀 把
key keys 钥匙 把
pen pens 钢笔 支
pencil pencils 铅笔 支
bag bags 书包 个
dishes: big small clean new
cup cups 杯子 个
plate plates 盘子 个
presents: small beautiful expensive new
gift gifts 礼物 件
toy toys 玩具 个
kite kites 风筝 只
guitar guitars 吉他 把
fruit: big small fresh
apple apples 苹果 个
orange oranges 橘子 个
pear pears 梨 个
watermelon watermelons 西瓜 个
tomato tomatoes 西红柿 个
banana bananas 香蕉 根
baked: big small delicious
cake cakes 蛋糕 个
dumpling dumplings 饺子 个
eggs: big small fresh
egg eggs 鸡蛋 个
plants: big small beautiful
tree trees 树 棵
flower flowers 花 朵
openings: big small
door doors 门 扇
window windows 窗户 扇
buildings: new old big small beautiful
house houses 房子 栋
rooms: big small
room rooms 房间 间
classroom classrooms 教室 间
office offices 办公室 间
sights: big old famous
museum museums 博物馆 座
factory factories 工厂 家
school schools 学校 所
"""


def _read_nouns(table: str) -> tuple[dict[str, Noun], dict[str, tuple[str, ...]]]:
    nouns: dict[str, Noun] = {}
    groups: dict[str, tuple[str, ...]] = {}
    group, adjectives = "", ()
    for first, *rest in _rows(table):
        if first.endswith(":"):
            group, adjectives = first[:-1], tuple(rest)
            groups[group] = ()
        else:
            nouns[first] = Noun(first, *rest, adjectives)
            groups[group] += (first,)
    return nouns, groups


NOUNS, GROUPS = _read_nouns(_NOUN_TABLE)

# en, Chinese, containers
MASS = {
    row[0]: Mass(row[0], row[1], tuple(row[2:]))
    for row in _rows("""
milk 牛奶 glass bottle
water 水 glass bottle
juice 果汁 glass bottle
tea 茶 cup
coffee 咖啡 cup
beer 啤酒 glass bottle
soup 汤 bowl
rice 米饭 bowl
noodles 面条 bowl
bread 面包 slice
meat 肉 kilo
vegetables 蔬菜 kilo
music 音乐
english 英语
chinese 汉语
football 足球
basketball 篮球
tennis 网球
""")
}
# container, plural, Chinese measure word
CONTAINERS = {
    row[0]: row
    for row in _rows("""
cup cups 杯
glass glasses 杯
bottle bottles 瓶
bowl bowls 碗
slice slices 片
kilo kilos 公斤
""")
}
GROUPS["drinks"] = ("milk", "water", "juice", "tea", "coffee", "beer")
GROUPS["bowls"] = ("rice", "noodles")

# ------------------------------------------------------------------------------------------- people
# group: adjectives, then singular plural Chinese measure-word
_PEOPLE_TABLE = """
young: little clever
boy boys 男孩 个
girl girls 女孩 个
child children 孩子 个
workers: young old
doctor doctors 医生 位
nurse nurses 护士 位
farmer farmers 农民 个
driver drivers 司机 个
worker workers 工人 个
school: young clever
teacher teachers 老师 位
student students 学生 个
known: young famous
singer singers 歌手 位
writer writers 作家 位
"""
PEOPLE, _ = _read_nouns(_PEOPLE_TABLE)
# People one has. A pronoun before them needs no 的: 我 妈妈.   English, Chinese, he or she (- either)
RELATIVES = {
    _text(en): (_text(en), zh, pronoun)
    for en, zh, pronoun in _rows("""
mother 妈妈 she
father 爸爸 he
grandmother 奶奶 she
grandfather 爷爷 he
older_brother 哥哥 he
younger_brother 弟弟 he
older_sister 姐姐 she
younger_sister 妹妹 she
son 儿子 he
daughter 女儿 she
friend 朋友 -
classmate 同学 -
neighbor 邻居 -
""")
}
NAMES = {
    en: (zh, pronoun)
    for en, zh, pronoun in _rows("""
tom 汤姆 he
peter 彼得 he
david 大卫 he
mary 玛丽 she
anna 安娜 she
linda 琳达 she
""")
}
# subject, object, possessive, Chinese, agreement (I, s singular, p plural)
PRONOUNS = {
    row[0]: row
    for row in _rows("""
i me my 我 I
you you your 你 p
he him his 他 s
she her her 她 s
we us our 我们 p
they them their 他们 p
""")
}

# ------------------------------------------------------------------------------------------- adjectives
# English, Chinese after the noun, Chinese before the noun (+ means with 的), comparative
_ADJECTIVE_TABLE = """
new 新 新 newer
old 旧 旧 -
big 大 大 bigger
small 小 小 smaller
long 长 长 longer
thick 厚 厚+ -
expensive 贵 昂贵+ more_expensive
cheap 便宜 便宜+ cheaper
beautiful 漂亮 漂亮+ more_beautiful
interesting 有趣 有趣+ more_interesting
fresh 新鲜 新鲜+ fresher
clean 干净 干净+ cleaner
dirty 脏 脏+ dirtier
heavy 重 重+ heavier
delicious 好吃 好吃+ -
famous 有名 有名+ more_famous
clever 聪明 聪明+ cleverer
young 年轻 年轻+ younger
little - 小 -
tall 高 高+ taller
busy 忙 忙+ busier
tired 累 累+ -
happy 高兴 高兴+ happier
hungry 饿 饿+ -
thirsty 渴 渴+ -
angry 生气 生气+ -
sad 难过 难过+ -
fast 快 快+ faster
black 黑色 黑 -
white 白色 白 -
red 红色 红 -
blue 蓝色 蓝 -
"""
ADJECTIVES = {
    en: Adjective(en, zh, before, "" if comparative == "-" else _text(comparative))
    for en, zh, before, comparative in _rows(_ADJECTIVE_TABLE)
}
COLOURS = ("black", "white", "red", "blue")
SIZES = ("big", "small")
FEELINGS = ("tired", "happy", "hungry", "thirsty", "angry", "sad", "busy")
TRAITS = ("tall", "clever", "young", "famous", "busy")  # what people are compared by
OLD_OF_LIVING = "老"  # an old car is 旧, an old doctor 老

# What may be said of a thing after "is", by noun group.
SAID_OF = {
    "reading": (
        "new",
        "old",
        "thick",
        "interesting",
        "expensive",
        "cheap",
    ),
    "words": (
        "long",
        "interesting",
    ),
    "shows": (
        "interesting",
        "long",
    ),
    "pictures": (
        "old",
        "beautiful",
        "expensive",
    ),
    "pets": (
        "big",
        "small",
        "black",
        "white",
        "clever",
    ),
    "farm": (
        "big",
        "small",
        "black",
        "white",
        "heavy",
    ),
    "clothes": (
        "new",
        "old",
        "expensive",
        "cheap",
        "beautiful",
        "clean",
        "dirty",
        "red",
        "black",
        "white",
        "blue",
    ),
    "worn": (
        "new",
        "expensive",
        "cheap",
        "beautiful",
    ),
    "vehicles": (
        "new",
        "old",
        "expensive",
        "cheap",
        "fast",
        "dirty",
        "red",
        "black",
        "white",
        "blue",
    ),
    "machines": (
        "new",
        "old",
        "expensive",
        "cheap",
        "heavy",
    ),
    "furniture": (
        "new",
        "old",
        "big",
        "heavy",
    ),
    "dishes": (
        "clean",
        "dirty",
        "small",
    ),
    "presents": (
        "expensive",
        "cheap",
        "beautiful",
    ),
    "fruit": (
        "fresh",
        "delicious",
        "cheap",
        "big",
    ),
    "baked": (
        "delicious",
        "expensive",
        "big",
    ),
    "buildings": (
        "new",
        "old",
        "big",
        "expensive",
        "beautiful",
    ),
    "rooms": (
        "big",
        "small",
        "clean",
        "dirty",
    ),
    "plants": (
        "big",
        "small",
        "beautiful",
    ),
}

# ------------------------------------------------------------------------------------------- verbs
# base third past ing Chinese tenses | objects (nouns or groups) | places | manners
_VERB_TABLE = """
read reads read reading 看 hpfg | reading newspaper letter poem story | study out | carefully quietly slowly alone
write writes wrote writing 写 hpfg | letter poem story novel book song | study | carefully slowly alone quickly
buy buys bought buying 买 hpf | reading paper pictures clothes worn vehicles machines furniture tools dishes presents fruit cake egg flower drinks bread meat vegetables | shops |
sell sells sold selling 卖 hpfg | reading newspaper clothes worn bicycle machines furniture umbrella pen toy kite fruit flower egg fish chicken sheep horse milk vegetables meat | shops | happily
borrow borrows borrowed borrowing 借 hpf | reading map car bicycle camera umbrella pen pencil chair guitar radio | study |
find finds found finding 找到 pf | tools watch phone ticket photo letter pets toy hat scarf box map | out study |
see sees saw seeing 看见 pf | buildings pets farm wild kite flower bus truck | out |
draw draws drew drawing 画 hpfg | picture pets farm wild plants house map fish bicycle car | study out | carefully slowly happily alone
wash washes washed washing 洗 hpfg | clothes car bicycle dishes dog cat horse apple pear tomato vegetables | home | carefully slowly quickly
eat eats ate eating 吃 hpfg | fruit cake dumpling egg fish bowls bread meat vegetables | eating | slowly quickly happily alone
drink drinks drank drinking 喝 hpfg | drinks soup | eating | slowly quickly quietly alone
cook cooks cooked cooking 煮 hpfg | egg dumpling bowls soup meat vegetables fish | home | carefully quickly
make makes made making 做 hpfg | cake dumpling bread chair table kite toy box skirt soup | home | carefully happily
feed feeds fed feeding 喂 hpfg | pets farm fish monkey panda | farms | happily carefully
chase chases chased chasing 追 hpfg | cat rabbit bird chicken duck sheep | out | happily
ride rides rode riding 骑 hpfg | bicycle horse | out | slowly happily alone
drive drives drove driving 开 hpfg | car truck taxi bus | towns | slowly carefully
repair repairs repaired repairing 修 hpfg | vehicles machines table chair watch umbrella guitar door window | home | carefully slowly quickly
open opens opened opening 打开 hpf | openings box letter gift bag umbrella computer | home | carefully quietly slowly
close closes closed closing 关上 hpf | openings box bag | home | carefully quietly quickly
carry carries carried carrying 搬 hpfg | furniture television computer | home | carefully slowly
plant plants planted planting 种 hpfg | plants | farms | happily carefully
clean cleans cleaned cleaning 打扫 hpfg | rooms buildings | | carefully quickly happily alone
use uses used using 用 hpfg | computer phone camera dictionary map knife pen pencil | study |
break breaks broke breaking 打破 p | dishes window watch | home |
catch catches caught catching 抓到 pf | fish rabbit bird snake chicken duck monkey | out |
watch watches watched watching 看 hpfg | shows | home | quietly happily alone
sing sings sang singing 唱 hpfg | song | out | loudly happily quietly
listen_to listens_to listened_to listening_to 听 hpfg | song story radio music | home out | quietly happily alone
study studies studied studying 学习 hpfg | english chinese | study | quietly happily
"""
# Verbs whose Chinese depends on the object, and so cannot be guessed for a new pair.
_CHOSEN_TABLE = """
wear wears wore wearing 穿 hpf | skirt shirt coat sweater | towns |
wear wears wore wearing 戴 hpf | worn scarf | towns |
play plays played playing 踢 hpfg | football | sports | happily
play plays played playing 打 hpfg | basketball tennis | sports | happily
visit visits visited visiting 参观 hpfg | sights | |
"""
_PEOPLE_VERB_TABLE = """
help helps helped helping 帮助 hpfg | | study home |
visit visits visited visiting 看望 hpf | | towns |
meet meets met meeting 见到 pf | | out towns |
thank thanks thanked thanking 感谢 pf | | |
teach teaches taught teaching 教 hpfg | | study |
wait_for waits_for waited_for waiting_for 等 hpfg | | towns |
invite invites invited inviting 邀请 hpf | | |
"""
_STATE_TABLE = """
like likes liked liking 喜欢 s | reading words pictures shows pets farm wild clothes worn vehicles presents fruit baked plants drinks bowls bread meat music | |
want wants wanted wanting 想要 s | buildings reading clothes worn vehicles machines furniture tools presents pets | |
need needs needed needing 需要 s | paper tools machines furniture dishes vehicles coat | |
have has had having 有 s | reading pictures pets horse clothes worn vehicles machines tools presents plants house | |
"""
_PEOPLE_STATE_TABLE = """
know knows knew knowing 认识 s | | |
love loves loved loving 爱 s | | |
like likes liked liking 喜欢 s | | |
"""
# Chinese puts whom before these verbs: 给 她 打电话, 跟 她 聊天
_TOWARDS_TABLE = """
call calls called calling 给-打电话 hpf | | home towns |
talk_with talks_with talked_with talking_with 跟-聊天 hpfg | | home out | happily quietly
"""
_INTRANSITIVE_TABLE = """
sleep sleeps slept sleeping 睡觉 hpfg | | home | quietly alone
run runs ran running 跑步 hpfg | | sports | slowly happily alone
swim swims swam swimming 游泳 hpfg | | rivers | slowly happily alone
dance dances danced dancing 跳舞 hpfg | | sports | happily slowly alone
work works worked working 工作 hpfg | | work | carefully quietly alone
rest rests rested resting 休息 hpfg | | home out | quietly alone
play plays played playing 玩 hpfg | | out | happily quietly alone
cry cries cried crying 哭 hpfg | | home | loudly quietly alone
laugh laughs laughed laughing 笑 hpfg | | study | loudly happily
exercise exercises exercised exercising 锻炼 hpfg | | sports | alone
"""


def _expand(names: list[str]) -> tuple[str, ...]:
    return tuple(noun for name in names for noun in GROUPS.get(name, (name,)))


def _read_verbs(table: str) -> tuple[Verb, ...]:
    verbs = []
    for line in table.strip().splitlines():
        forms, objects, places, manners = (part.split() for part in line.split("|"))
        base, third, past, ing, zh, tenses = map(_text, forms)
        verbs.append(
            Verb(base, third, past, ing, zh, tenses, _expand(objects), tuple(places), tuple(manners))
        )
    return tuple(verbs)


PLAIN_VERBS = _read_verbs(_VERB_TABLE)
CHOSEN_VERBS = _read_verbs(_CHOSEN_TABLE)
PEOPLE_VERBS = _read_verbs(_PEOPLE_VERB_TABLE)
STATES = _read_verbs(_STATE_TABLE)
PEOPLE_STATES = _read_verbs(_PEOPLE_STATE_TABLE)
TOWARDS = _read_verbs(_TOWARDS_TABLE)
INTRANSITIVES = _read_verbs(_INTRANSITIVE_TABLE)
PUT = Verb("put", "puts", "put", "putting", "放在", "hpf")
GO = Verb("go", "goes", "went", "going", "去", "hpf")
HAND_OVER = (  # "gave him a book" 送给了他一本书; "gave the book to him" 把书送给他了
    Verb(
        "give",
        "gives",
        "gave",
        "giving",
        "送给",
        "pf",
        _expand(["reading", "clothes", "worn", "presents", "flower", "cake", "cat", "dog", "camera", "pen"]),
    ),
    Verb(
        "lend",
        "lends",
        "lent",
        "lending",
        "借给",
        "pf",
        _expand(["reading", "map", "car", "bicycle", "camera", "umbrella", "pen", "pencil", "guitar"]),
    ),
    Verb(
        "send",
        "sends",
        "sent",
        "sending",
        "寄给",
        "pf",
        _expand(["letter", "photo", "gift", "book", "magazine", "map", "skirt", "scarf", "sweater"]),
    ),
    Verb(
        "sell",
        "sells",
        "sold",
        "selling",
        "卖给",
        "pf",
        _expand(["car", "bicycle", "horse", "sheep", "camera", "computer", "watch", "guitar"]),
    ),
)
ANIMAL_VERBS = ("sleep", "run", "play", "rest")
# modal, Chinese; "want to" is inflected, the others are not
MODALS = {"will": "会", "can": "可以", "should": "应该", "must": "必须"}

# ------------------------------------------------------------------------------------------- adverbials
# place groups: English, Chinese (after 在)
_PLACE_TABLE = """
study: at_school 学校 | in_the_library 图书馆 | in_the_classroom 教室 | at_home 家 | in_the_office 办公室
out: in_the_park 公园 | in_the_garden 花园 | by_the_river 河边 | in_the_village 村子里 | on_the_farm 农场 | in_the_street 街上
shops: in_the_shop 商店 | at_the_market 市场 | in_the_city 城里 | in_beijing 北京 | in_shanghai 上海
home: at_home 家 | in_the_kitchen 厨房 | in_the_garden 花园 | in_the_room 房间
eating: at_home 家 | in_the_kitchen 厨房 | in_the_restaurant 饭馆 | at_school 学校 | in_the_park 公园 | at_the_station 车站
farms: on_the_farm 农场 | in_the_garden 花园 | in_the_village 村子里 | at_the_zoo 动物园
towns: in_the_city 城里 | in_beijing 北京 | in_shanghai 上海 | at_school 学校 | at_the_station 车站 | at_the_airport 机场 | in_the_hospital 医院
sports: in_the_park 公园 | at_school 学校 | by_the_river 河边 | in_the_village 村子里
rivers: in_the_river 河里 | in_the_sea 海里
work: in_the_office 办公室 | in_the_hospital 医院 | in_the_factory 工厂 | on_the_farm 农场 | in_the_shop 商店 | at_the_bank 银行 | in_beijing 北京
"""


def _read_places(table: str) -> dict[str, tuple[tuple[str, str], ...]]:
    places = {}
    for line in table.strip().splitlines():
        group, entries = line.split(":")
        places[group] = tuple((_text(en), zh) for en, zh in (entry.split() for entry in entries.split("|")))
    return places


PLACES = _read_places(_PLACE_TABLE)
# English, Chinese, and how one may get there
NEAR = ("bus", "taxi", "bicycle", "car", "foot")
FAR = ("train", "plane", "bus", "car")
DESTINATIONS = tuple(
    (_text(en), zh, FAR if reach == "far" else NEAR)
    for en, zh, reach in _rows("""
the_park 公园 near
school 学校 near
the_library 图书馆 near
the_shop 商店 near
the_market 市场 near
the_station 车站 near
the_airport 机场 near
the_hospital 医院 near
the_zoo 动物园 near
the_museum 博物馆 near
the_bank 银行 near
the_restaurant 饭馆 near
beijing 北京 far
shanghai 上海 far
guangzhou 广州 far
""")
)
TRANSPORT = {
    "bus": ("by bus", "坐 公共汽车"),
    "train": ("by train", "坐 火车"),
    "plane": ("by plane", "坐 飞机"),
    "taxi": ("by taxi", "坐 出租车"),
    "bicycle": ("by bicycle", "骑 自行车"),
    "car": ("by car", "开 车"),
    "foot": ("on foot", "走路"),
}
# Why somebody does a thing, and why not.
REASONS = {
    "thirsty": ("drink",),
    "hungry": ("eat", "cook", "make"),
    "tired": ("sleep", "rest"),
    "happy": ("sing", "dance", "laugh"),
    "sad": ("cry",),
    "busy": ("buy", "drive", "work"),
}
REASONS_AGAINST = ("tired", "busy", "sad", "angry")
# Where a thing lies: English preposition, noun, Chinese noun, Chinese position word
SPOTS = tuple(
    (_text(prep), noun, zh, side)
    for prep, noun, zh, side in _rows("""
on table 桌子 上
under table 桌子 下面
on bed 床 上
under bed 床 下面
on chair 椅子 上
in box 盒子 里
in bag 书包 里
in room 房间 里
next_to window 窗户 旁边
next_to door 门 旁边
behind door 门 后面
behind chair 椅子 后面
in_front_of window 窗户 前面
""")
)
OUTDOOR_SPOTS = tuple(
    (_text(prep), noun, zh, side)
    for prep, noun, zh, side in _rows("""
under tree 树 下面
behind tree 树 后面
next_to river 河 旁边
in garden 花园 里
in_front_of house 房子 前面
behind house 房子 后面
next_to school 学校 旁边
in_front_of hospital 医院 前面
""")
)
SMALL_THINGS = _expand(
    [
        "reading",
        "paper",
        "letter",
        "photo",
        "tools",
        "dishes",
        "watch",
        "hat",
        "scarf",
        "phone",
        "camera",
        "toy",
        "apple",
        "orange",
        "egg",
    ]
)
LIVING_THINGS = _expand(["pets", "farm", "snake", "monkey"])

# English, Chinese; "every" times bring 都 with them
TIMES = {
    tense: tuple((_text(en), zh) for en, zh in (entry.split() for entry in entries.split("|")))
    for tense, entries in {
        "p": "yesterday 昨天 | last_night 昨晚 | last_week 上周 | last_month 上个月 | last_year 去年 | this_morning 今天早上",
        "f": "tomorrow 明天 | tonight 今晚 | next_week 下周 | next_month 下个月 | next_year 明年 | tomorrow_morning 明天早上",
        "g": "now 现在 | at_the_moment 此刻",
        "every": "every_day 每天 | every_morning 每天早上 | every_evening 每天晚上 | every_week 每周 | every_year 每年",
        "h": "on_weekends 周末 | in_the_morning 早上 | in_the_evening 晚上 | in_summer 夏天 | in_winter 冬天 | on_mondays 周一",
    }.items()
}
FREQUENCY = {"often": "经常", "always": "总是", "usually": "通常", "sometimes": "有时", "never": "从不"}
# English, Chinese, and whether 地 follows
MANNERS = {
    "slowly": ("慢慢", True),
    "quickly": ("快速", True),
    "carefully": ("仔细", True),
    "quietly": ("安静", True),
    "happily": ("高兴", True),
    "loudly": ("大声", True),
    "alone": ("独自", False),
}
NUMBERS = {"two": "两", "three": "三", "four": "四", "five": "五", "six": "六", "ten": "十"}
ORDINALS = {"first": "第一", "second": "第二", "third": "第三"}
