# ruff: noqa: RUF001 - these are other alphabets
"""Texts in the encodings that were usual before UTF-8: prose, exported tables, lists and single sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ENCODINGS = {
    "english": ("cp1252",),
    "german": ("cp1252", "iso-8859-1", "iso-8859-15"),
    "french": ("cp1252", "iso-8859-1", "iso-8859-15"),
    "spanish": ("cp1252", "iso-8859-1"),
    "portuguese": ("cp1252", "iso-8859-1"),
    "italian": ("cp1252", "iso-8859-1"),
    "polish": ("cp1250", "iso-8859-2"),
    "czech": ("cp1250", "iso-8859-2"),
    "russian": ("cp1251", "koi8-r"),
    "greek": ("cp1253", "iso-8859-7"),
    "turkish": ("cp1254", "iso-8859-9"),
    "hebrew": ("cp1255",),
    "japanese": ("shift_jis", "euc_jp"),
    "chinese": ("gb18030",),
    "taiwanese": ("big5",),
    "korean": ("euc_kr",),
}

# Eighteen of each language. The rule that chooses an encoding was found with the first six and corrected after the
# second six; the third six were written after that.
SENTENCES = {
    "english": """
The café on Pier 4 opens at 7 o'clock - earlier than the "Harbour Inn".
Don't store the résumé next to the invoice; it's confidential.
The heater runs at 20 °C and costs £3.50 a day.
Zoë's report says: "Nothing was lost - we were lucky."
Our façade was painted in May, the roof's still waiting.
The naïve approach isn't wrong, it's just slow.
We'll meet at the "Blue Anchor" - bring the signed contract.
The customer's deposit of £250 wasn't returned.
Use a 5 ½ inch pipe; the 6 inch one doesn't fit.
"That's enough," she said, "the ferry won't wait."
The jalapeño sauce isn't on today's menu.
Copyright © 2003 Harbour Authority - all rights reserved.
The tenant pays £40 a week - heating isn't included.
Fiancé's surname: O'Neill-Brontë; see "Family".
It's 3 × 4 metres and weighs ¼ tonne.
"Please don't ring the bell," the note said.
We've ordered crème brûlée for twenty guests.
The company's motto was "No bridge too far".""",
    "german": """
Die Grüße aus Köln kamen für alle überraschend.
Bitte überweisen Sie den Betrag bis zum 15. März auf unser Konto.
Der Schlüssel hängt neben der Tür im großen Büro.
Müller & Söhne liefern täglich frische Brötchen.
Für die Prüfung benötigen wir Ihre Unterlagen - möglichst vollständig.
Der Wärmezähler im Keller wurde im Frühjahr geprüft.
Die Straße nach Süden ist wegen Bauarbeiten gesperrt.
Öffnungszeiten: täglich außer samstags von acht bis fünf.
Ihre Bestellung über zwölf Stühle ist eingetroffen.
Der Verkäufer sagte: "Das Gerät läuft geräuschlos."
Änderungen müssen schriftlich bestätigt werden.
Größe und Gewicht stehen auf der Rückseite.
Übergabe der Schlüssel am Samstag gegen zwölf.
Das Gemüse gehört in die unterste Schublade.
Fräulein Böhm wünscht keine Störung - auch nicht telefonisch.
Außenmaße: vierzig mal dreißig Zentimeter.
Er hörte plötzlich Schritte hinter der Mauer.
Vergütet werden höchstens fünf Überstunden.""",
    "french": """
La réunion est reportée à jeudi, en début de matinée.
Où avez-vous rangé les clés de l'entrepôt ?
Les élèves ont préparé un gâteau pour la fête de l'école.
Le règlement intérieur a été modifié en février.
Nous n'avons pas encore reçu votre chèque.
Ça coûte trop cher - même après la remise.
L'hôtel se trouve à côté de la gare, derrière le théâtre.
Le garçon a oublié son cartable à la bibliothèque.
Votre colis a été livré chez le voisin dès hier.
Les tarifs d'été s'appliquent jusqu'à la fin août.
Un problème est survenu lors de l'exécution du contrôle.
Elle répond toujours : "Peut-être, après le déjeuner."
L'évêque a béni la chapelle après les travaux.
Hélas, la clé était cassée dans la serrure.
Veuillez agréer l'expression de mes sentiments distingués.
Le maïs et les épinards poussent très bien ici.
À l'époque, personne n'y prêtait attention.
Numéro de référence : à rappeler dans le courrier.""",
    "spanish": """
¿Dónde está la estación de autobuses más cercana?
El niño pequeño soñó con una montaña de azúcar.
La reunión del miércoles empezará a las nueve.
Según el informe, la producción aumentó un tres por ciento.
¡Qué día tan bonito para ir a la playa!
El señor Muñoz firmó el contrato en Málaga.
Las vacaciones del próximo año serán más largas.
No olvide su contraseña ni su número de teléfono.
El avión llegó con retraso debido a la tormenta eléctrica.
Aún no sabemos cuándo se publicarán los resultados.
El café está frío y el pan se quemó también.
La dirección correcta es calle Peñón, número doce.
Mañana saldrá el último tren hacia La Coruña.
Cigüeñas y pingüinos no conviven en el zoológico.
¿Cuántos años tiene la compañía de seguros?
El médico recomendó una dieta sin lácteos.
Pedí un café con leche y una piña.
Está prohibido fumar en toda la instalación.""",
    "portuguese": """
A reunião foi adiada para amanhã às dez horas.
Não há ninguém no escritório durante as férias.
O preço do pão subiu três vezes este mês.
As crianças não gostam de maçãs, só de limões.
A informação está disponível na página da câmara.
Você já recebeu a confirmação da inscrição?
A estação de comboios fica atrás do hospital.
O avô comprou um cão para o neto mais novo.
Precisamos de um médico e de uma ambulância já.
As eleições serão realizadas no próximo domingo.
Atenção: a ligação elétrica não é segura.
O relatório técnico contém várias recomendações.
O pagamento será efectuado até ao fim do mês.
Três irmãs herdaram a fábrica de calçado.
Não é possível alterar a situação fiscal.
O coração bate mais rápido à noite.
Pôr do sol às oito, jantar às nove.
As opiniões dos cidadãos são públicas.""",
    "italian": """
La città è più bella quando non c'è traffico.
Il caffè è pronto, perché non vieni in cucina?
La società ha già pagato l'affitto di venerdì.
Non so se lunedì potrò venire all'università.
La qualità del servizio è migliorata, però costa di più.
Il menù di oggi è scritto sulla lavagna laggiù.
Martedì il museo è chiuso per attività di restauro.
È arrivata la comunicità europea con una novità.
Il papà di Niccolò abita là, vicino al caffè.
La velocità massima è di trenta chilometri all'ora.
Così non va: la responsabilità è tua.
Giovedì sarà possibile visitare il castello.
Perché hai lasciato la porta aperta?
Il lavoro è finito, però manca la metà del materiale.
Mercoledì c'è il mercato in piazza.
Più tardi telefonerò alla tua università.
La libertà non è gratis, disse il papà.
Il ragù di mia nonna è ancora il migliore.""",
    "polish": """
Proszę wypełnić formularz i złożyć podpis.
Gdzie znajduje się najbliższa stacja kolejowa?
Książka leży na półce obok zdjęć z wakacji.
Wczoraj padał deszcz, dziś świeci słońce.
Źródło wody znajduje się przy ścieżce do lasu.
Zażółć gęślą jaźń - to zdanie zna każdy zecer.
Dziękujemy za zamówienie, paczka wyjdzie jutro.
Łódź jest większa niż Gdańsk, ale mniejsza niż Kraków.
Sąsiad wziął urlop i wyjechał w góry.
Należność prosimy uregulować w ciągu dwóch tygodni.
Późną jesienią ścieżki są śliskie i niebezpieczne.
Część pracowników będzie dojeżdżać rowerem.
Jeżeli będzie padać, zostaniemy w domu.
Kupię dwa chleby, masło i trochę śliwek.
Wójt gminy ogłosił przetarg na budowę mostu.
Życzymy państwu przyjemnego pobytu.
Zgłoszenia przyjmujemy wyłącznie pocztą.
Mężczyzna w żółtym płaszczu zgubił portfel.""",
    "czech": """
Příliš žluťoučký kůň úpěl ďábelské ódy.
Schůze se přesouvá na čtvrtek v devět hodin.
Děti si hrály na hřišti až do večera.
Prosím, vyplňte žádost a připojte svůj podpis.
Ředitel školy oznámil změny v rozvrhu.
Město Plzeň leží na soutoku čtyř řek.
Účet za elektřinu přišel vyšší než loni.
Nejbližší lékárna je vedle pošty.
Řidič zastavil před přechodem pro chodce.
Dveře do skladu musí být vždy zavřené.
Těšíme se na vaši návštěvu příští týden.
Zboží bude doručeno během tří dnů.
Koupím dva chleby, máslo a trochu švestek.
Jestli bude pršet, zůstaneme doma.
Přejeme vám příjemný pobyt.
Muž ve žlutém plášti ztratil peněženku.
Obec vypsala soutěž na stavbu mostu.
Ještě dnes vám zašleme potvrzení.""",
    "russian": """
Собрание переносится на четверг, на девять утра.
Где находится ближайшая железнодорожная станция?
Дети играли во дворе до самого вечера.
Пожалуйста, заполните бланк и поставьте подпись.
Директор школы сообщил об изменениях в расписании.
Вчера шёл дождь, а сегодня светит солнце.
Счёт за электричество оказался выше, чем в прошлом году.
Товар будет доставлен в течение трёх дней.
Дверь склада должна быть всегда закрыта.
Ближайшая аптека находится рядом с почтой.
Водитель остановился перед пешеходным переходом.
Ждём вашего приезда на следующей неделе.
Если пойдёт дождь, мы останемся дома.
Куплю два хлеба, масло и немного слив.
Желаем вам приятного отдыха!
Мужчина в жёлтом плаще потерял кошелёк.
Глава района объявил конкурс на постройку моста.
Ответ мы отправим ещё сегодня.""",
    "greek": """
Η συνάντηση μεταφέρεται για την Πέμπτη το πρωί.
Πού βρίσκεται ο πλησιέστερος σταθμός του τρένου;
Τα παιδιά έπαιζαν στην αυλή μέχρι το βράδυ.
Παρακαλώ συμπληρώστε την αίτηση και υπογράψτε.
Ο διευθυντής ανακοίνωσε αλλαγές στο πρόγραμμα.
Χθες έβρεχε, αλλά σήμερα έχει ήλιο.
Ο λογαριασμός του ρεύματος ήταν υψηλότερος φέτος.
Το φαρμακείο είναι δίπλα στο ταχυδρομείο.
Η πόρτα της αποθήκης πρέπει να είναι κλειστή.
Τα προϊόντα θα παραδοθούν σε τρεις ημέρες.
Ο οδηγός σταμάτησε πριν από τη διάβαση.
Σας περιμένουμε την επόμενη εβδομάδα στην Αθήνα.
Αν βρέξει, θα μείνουμε στο σπίτι.
Θα αγοράσω ψωμί, βούτυρο και δαμάσκηνα.
Σας ευχόμαστε ευχάριστη διαμονή!
Ο άντρας με το κίτρινο παλτό έχασε το πορτοφόλι.
Ο δήμος προκήρυξε διαγωνισμό για τη γέφυρα.
Θα σας απαντήσουμε ακόμη και σήμερα.""",
    "turkish": """
Toplantı perşembe günü saat dokuza ertelendi.
En yakın tren istasyonu nerede, biliyor musunuz?
Çocuklar akşama kadar bahçede oynadılar.
Lütfen formu doldurun ve imzanızı atın.
Okul müdürü ders programındaki değişiklikleri açıkladı.
Dün yağmur yağdı, bugün güneş açtı.
Elektrik faturası geçen yıldan daha yüksek çıktı.
Eczane postanenin hemen yanındadır.
Deponun kapısı her zaman kapalı olmalıdır.
Siparişiniz üç gün içinde teslim edilecektir.
Şoför yaya geçidinden önce durdu.
Gelecek hafta sizi İstanbul'da bekliyoruz.
Yağmur yağarsa evde kalacağız.
İki ekmek, tereyağı ve biraz erik alacağım.
Size iyi tatiller dileriz, güle güle!
Sarı paltolu adam cüzdanını kaybetmiş.
Belediye köprü inşaatı için ihale açtı.
Cevabımızı bugün içinde göndereceğiz.""",
    "hebrew": """
הישיבה נדחתה ליום חמישי בשעה תשע בבוקר.
איפה נמצאת תחנת הרכבת הקרובה ביותר?
הילדים שיחקו בחצר עד הערב.
נא למלא את הטופס ולחתום בתחתית הדף.
מנהל בית הספר הודיע על שינויים במערכת.
אתמול ירד גשם והיום השמש זורחת.
חשבון החשמל היה גבוה יותר מהשנה שעברה.
בית המרקחת נמצא ליד הדואר.
דלת המחסן צריכה להיות סגורה תמיד.
ההזמנה תגיע אליך בתוך שלושה ימים.
הנהג עצר לפני מעבר החציה.
נשמח לראותך בשבוע הבא בירושלים.
אם ירד גשם נישאר בבית.
אקנה שתי כיכרות לחם, חמאה ומעט שזיפים.
אנו מאחלים לכם שהייה נעימה!
האיש במעיל הצהוב איבד את הארנק.
העירייה פרסמה מכרז לבניית הגשר.
נשלח לכם תשובה עוד היום.""",
    "japanese": """
会議は木曜日の午前九時に延期されました。
最寄りの駅はどこにありますか。
子どもたちは夕方まで庭で遊んでいました。
用紙に記入して署名してください。
校長は時間割の変更を発表しました。
昨日は雨でしたが、今日は晴れています。
電気料金は去年より高くなりました。
薬局は郵便局の隣にあります。
倉庫のドアは必ず閉めてください。
商品は三日以内にお届けします。
運転手は横断歩道の前で止まりました。
来週のご訪問をお待ちしております。
雨が降ったら家にいます。
パンを二つとバターを買います。
どうぞごゆっくりお過ごしください。
黄色いコートの男性が財布をなくしました。
市は橋の建設の入札を行いました。
返事は今日中に送ります。""",
    "chinese": """
会议推迟到星期四上午九点。
请问最近的火车站在哪里？
孩子们在院子里一直玩到晚上。
请填写表格并在下面签名。
校长宣布了课程表的变动。
昨天下雨，今天出太阳了。
今年的电费比去年高。
药店就在邮局旁边。
仓库的门必须随时关好。
货物将在三天之内送到。
司机在人行横道前停了下来。
我们期待您下周的来访。
如果下雨，我们就留在家里。
我要买两个面包和一些黄油。
祝您住得愉快！
穿黄色大衣的男人丢了钱包。
市政府为建桥进行了招标。
我们今天就给您答复。""",
    "taiwanese": """
會議延到星期四上午九點。
請問最近的火車站在哪裡？
孩子們在院子裡一直玩到晚上。
請填寫表格並在下面簽名。
校長宣布了課程表的變動。
昨天下雨，今天出太陽了。
今年的電費比去年高。
藥局就在郵局旁邊。
倉庫的門必須隨時關好。
貨物將在三天之內送達。
司機在斑馬線前停了下來。
我們期待您下週的來訪。
如果下雨，我們就留在家裡。
我要買兩個麵包和一些奶油。
祝您住得愉快！
穿黃色大衣的男人掉了錢包。
市政府為建橋進行了招標。
我們今天就給您答覆。""",
    "korean": """
회의는 목요일 오전 아홉 시로 연기되었습니다.
가장 가까운 기차역은 어디에 있습니까?
아이들은 저녁까지 마당에서 놀았습니다.
양식을 작성하고 서명해 주십시오.
교장 선생님이 시간표 변경을 발표했습니다.
어제는 비가 왔지만 오늘은 맑습니다.
전기 요금이 작년보다 많이 나왔습니다.
약국은 우체국 바로 옆에 있습니다.
창고 문은 항상 닫아 두어야 합니다.
상품은 사흘 안에 배달될 예정입니다.
운전기사는 횡단보도 앞에서 멈췄습니다.
다음 주 방문을 기다리고 있겠습니다.
비가 오면 우리는 집에 있을 것입니다.
빵 두 개와 버터를 사겠습니다.
즐거운 시간 보내시기 바랍니다!
노란 외투를 입은 남자가 지갑을 잃어버렸습니다.
시는 다리 건설을 위한 입찰을 실시했습니다.
오늘 안으로 답장을 보내 드리겠습니다.""",
}


@dataclass(frozen=True)
class LegacyText:
    """A file as an old program saved it, and its text."""

    language: str
    encoding: str
    form: Literal["prose", "table", "list", "sentence"]
    text: str

    @property
    def content(self) -> bytes:
        """The bytes of the file."""
        return self.text.encode(self.encoding)


def legacy_texts(part: int) -> list[LegacyText]:
    """Return one text of each form for each language and encoding, from one of three sets of sentences."""
    texts: list[LegacyText] = []
    for language, encodings in ENCODINGS.items():
        lines = [line.strip() for line in SENTENCES[language].strip().split("\n")]
        sentences = lines[6 * part :][:6]
        for at, encoding in enumerate(encodings):
            used = [_as_in_office(line) if encoding.startswith("cp125") else line for line in sentences]
            numbered = "".join(f"{number}. {line}\n" for number, line in enumerate(used, start=1))
            texts += [
                LegacyText(language, encoding, "prose", " ".join(used * 2) + "\n"),
                LegacyText(language, encoding, "table", _table(used)),
                LegacyText(language, encoding, "list", numbered),
                LegacyText(language, encoding, "sentence", used[(at + 3) % 6]),
            ]
    return [text for text in texts if not text.content.isascii()]


def _as_in_office(line: str) -> str:
    """Return a sentence with the quotes and dashes that word processors make."""
    opened, quote, closed = line.partition('"')
    if quote:
        inner, _, rest = closed.partition('"')
        line = f"{opened}“{inner}”{rest}"
    return line.replace("'", "’").replace(" - ", " – ")


def _table(sentences: list[str]) -> str:
    """Return a table as spreadsheets export it where a comma separates decimals."""
    rows = [f"{1000 + number};{line.replace(';', ',')};{number},50" for number, line in enumerate(sentences)]
    return "\r\n".join(["Nr;Text;EUR", *rows, ""])
